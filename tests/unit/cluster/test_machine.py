from distxcept.cluster import machine


def test_versions():
    found = machine.package_versions(["numpy", "no-such-package-at-all"])
    assert found["numpy"] and found["no-such-package-at-all"] is None
    assert machine.installed_versions(found) == {"numpy": found["numpy"]}


def test_a_processor_has_a_name_even_where_the_kernel_tells_none(monkeypatch, tmp_path):
    assert machine.processor_name()
    told = tmp_path / "cpuinfo"
    told.write_text("processor : 0\nmodel name\t: Fast One @ 3 GHz\n")
    monkeypatch.setattr(machine, "Path", lambda path: told)
    assert machine.processor_name() == "Fast One @ 3 GHz"
    told.unlink()
    assert machine.processor_name() == machine.platform.machine()
