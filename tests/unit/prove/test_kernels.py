"""Which kernels are compared: all of Xception's convolutions, each kind once."""

from benchmarks.kernels import Form, forms
from benchmarks.profile_update import products
from distxcept.model.layout import Layout

PAPER = Layout(classes=1000)


def test_all_convolutions_are_there():
    found = forms(PAPER, 299)
    assert found.total() == 36 + 4
    assert found[Form(1, 728, 728, 1, "SAME", 19)] == 25
    assert found[Form(3, 32, 64, 1, "VALID", 149)] == 1
    assert found[Form(1, 64, 128, 2, "SAME", 147)] == 1
    assert str(Form(3, 3, 32, 2, "VALID", 299)) == "3×3, 3 → 32 at 299 px, stride 2"


def test_their_multiplications_are_those_of_the_network():
    """But for depthwise kernels and the classifier."""
    depthwise = sum(
        9 * one.inputs * one.output_side(side) ** 2 for one, side in PAPER.convolutions(299) if one.separable
    )
    outputs = {form: (form.side - form.size) // form.stride + 1 for form in forms(PAPER, 299)}
    found = sum(
        count * form.size**2 * form.inputs * form.outputs * outputs[form] ** 2
        for form, count in forms(PAPER, 299).items()
    )
    assert found == products(PAPER, 299) - depthwise - 2048 * 1000
