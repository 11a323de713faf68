"""Where CUDA and NCCL are found, and how NCCL is handed to the linker."""

from pathlib import Path

import pytest

from launch.horovod_build.compile import gpu_environment
from launch.horovod_build.errors import MissingError
from launch.horovod_build.nvidia import Cuda, Nccl, find_cuda, find_nccl

pytestmark = pytest.mark.usefixtures("clean_environment")


def make_nccl(home: Path, folder: str = "lib", name: str = "libnccl.so.2", patch: int = 3) -> Path:
    (home / "include").mkdir(parents=True)
    (home / "include/nccl.h").write_text(
        f'#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n#define NCCL_PATCH {patch}\n#define NCCL_SUFFIX ""\n'
    )
    (home / folder).mkdir(parents=True)
    (home / folder / name).touch()
    return home


def make_cuda(home: Path) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include/cuda_runtime.h").touch()
    nvcc = home / "bin/nvcc"
    nvcc.write_text(
        "#!/bin/sh\n"
        'case $1 in --version) echo "Cuda compilation tools, release 12.4, V12.4.131" ;;\n'
        f'--dryrun) echo "#$ TOP={home}/bin/.." >&2 ;; esac\n'
    )
    nvcc.chmod(0o755)
    return home


def test_the_package_beside_tensorflow_comes_before_the_system(tmp_path) -> None:
    make_nccl(tmp_path / "site/nvidia/nccl", patch=5)
    make_nccl(tmp_path / "usr", folder="lib64", name="libnccl.so")
    found = find_nccl(tmp_path / "site", tmp_path / "usr")
    assert (found.version, found.bundled) == ("2.27.5", True)
    system = find_nccl(tmp_path / "empty", tmp_path / "usr")
    assert (system.version, system.bundled) == ("2.27.3", False)
    assert system.library == tmp_path / "usr/lib64/libnccl.so"


def test_nccl_that_is_named_wins_and_has_to_be_there(tmp_path, monkeypatch) -> None:
    make_nccl(tmp_path / "site/nvidia/nccl")
    make_nccl(tmp_path / "mine", patch=9)
    monkeypatch.setenv("HOROVOD_NCCL_HOME", str(tmp_path / "mine"))
    assert find_nccl(tmp_path / "site", tmp_path).version == "2.27.9"
    monkeypatch.setenv("HOROVOD_NCCL_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(MissingError, match=r"HOROVOD_NCCL_HOME=.*nowhere"):
        find_nccl(tmp_path / "site", tmp_path)


def test_no_nccl_names_the_package(tmp_path) -> None:
    (tmp_path / "usr/include").mkdir(parents=True)
    (tmp_path / "usr/include/nccl.h").touch()  # a header alone is not enough
    with pytest.raises(MissingError, match="pip install nvidia-nccl-cu12"):
        find_nccl(tmp_path / "site", tmp_path / "usr")


def test_cuda_behind_a_wrapper_on_path(tmp_path, monkeypatch) -> None:
    home = make_cuda(tmp_path / "cuda-12.4")
    wrapper = tmp_path / "path/nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {home}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent))
    assert find_cuda() == Cuda(home, "12.4")


def test_cuda_that_is_named_wins(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(make_cuda(tmp_path / "second")))
    monkeypatch.setenv("HOROVOD_CUDA_HOME", str(make_cuda(tmp_path / "first")))
    assert find_cuda().home == tmp_path / "first"


def test_cuda_without_headers(tmp_path, monkeypatch) -> None:
    home = make_cuda(tmp_path / "cuda")
    (home / "include/cuda_runtime.h").unlink()
    monkeypatch.setenv("CUDA_HOME", str(home))
    with pytest.raises(MissingError, match=r"no include/cuda_runtime\.h"):
        find_cuda()


@pytest.mark.parametrize(
    ("bundled", "run_path"),
    [(True, "'$ORIGIN/../../nvidia/nccl/lib'"), (False, "'/opt/nccl/lib'")],
)
def test_nccl_is_linked_without_a_temporary_folder_in_the_run_path(bundled, run_path, tmp_path) -> None:
    nccl = Nccl(Path("/opt/nccl/include"), Path("/opt/nccl/lib/libnccl.so.2"), "2.27.3", bundled)
    environment = gpu_environment(Path("/cuda"), nccl, tmp_path)
    script = Path(environment["HOROVOD_NCCL_LIB"]) / "libnccl.a"
    assert script.read_text() == 'INPUT("/opt/nccl/lib/libnccl.so.2")\n'
    assert environment["LDFLAGS"] == f"-Wl,-rpath,{run_path}"
    assert environment["HOROVOD_GPU_OPERATIONS"] == "NCCL"
