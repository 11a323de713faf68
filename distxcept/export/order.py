"""What an export is to be. Without TensorFlow, so that what cannot be is refused before anything is loaded."""

from dataclasses import dataclass

from distxcept.errors import ConfigError

FORMATS = ("keras", "savedmodel", "tflite", "onnx")
QUANTIZATIONS = ("none", "float16", "int8")


@dataclass(frozen=True)
class Order:
    """What is wanted."""

    form: str
    quantize: str | None = None
    """For TFLite: none, float16, int8; None is float16 there."""
    images: int = 500
    """At most so many are taken for the comparison."""

    def __post_init__(self) -> None:
        if self.form not in FORMATS:
            raise ConfigError(f"there is no format {self.form!r}; there are {', '.join(FORMATS)}")
        if self.quantize is not None and self.form != "tflite":
            raise ConfigError(f"quantize is for tflite, not for {self.form}")
        if self.quantize not in (None, *QUANTIZATIONS):
            raise ConfigError(f"there is no quantize {self.quantize!r}; there are {', '.join(QUANTIZATIONS)}")

    @property
    def quantized(self) -> str:
        """none, float16 or int8."""
        return self.quantize or ("float16" if self.form == "tflite" else "none")

    @property
    def arithmetic(self) -> str:
        return "float32" if self.quantized == "none" else self.quantized

    def file_name(self) -> str:
        quantized = "" if self.quantized == "none" else f"-{self.quantized}"
        return {"keras": "model.keras", "savedmodel": "saved_model", "onnx": "model.onnx"}.get(
            self.form, f"model{quantized}.tflite"
        )
