"""Opening beneath a directory: both ways refuse the same names."""

import os
import socket
from pathlib import Path

import pytest

from groundplane_router.grep.beneath import (
    choose_open,
    is_absence,
    open_by_component,
    open_directory,
    open_regular_file,
    try_openat2,
)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture(params=["openat2", "by_component"])
def opened(request, tree):
    if request.param == "by_component":
        return open_by_component
    found = try_openat2()
    if found is None or choose_open(tree) is open_by_component:
        pytest.skip("this kernel has no openat2")
    return found


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "outside.txt").write_text("secret")
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "file.txt").write_text("inside")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    (root / "inside_link.txt").symlink_to("inner/file.txt")
    (root / "link_dir").symlink_to(tmp_path)
    os.mkfifo(root / "fifo")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("name", ["inner/file.txt", "./inner//file.txt"])
def test_a_regular_file_beneath_is_opened(opened, tree, name):
    """The refusals below mean something only if the plain case works."""
    descriptor = open_regular_file(opened, tree, name)

    assert os.read(descriptor, 100) == b"inside"
    os.close(descriptor)


@pytest.mark.parametrize(
    "name",
    [
        "link.txt",
        "inside_link.txt",
        "link_dir/outside.txt",
        "../outside.txt",
        "inner/../../outside.txt",
        "/etc/hostname",
    ],
)
def test_no_name_leads_outside_or_through_a_link(opened, tree, name):
    """Whatever leaves the root would be shown to every tenant."""
    with pytest.raises(OSError, match=r".") as refusal:
        open_regular_file(opened, tree, name)

    assert is_absence(refusal.value)


@pytest.mark.timeout(10)
def test_a_fifo_is_refused_without_waiting(opened, tree):
    """A plain open of a FIFO waits for a writer for ever."""
    with pytest.raises(OSError, match="regular") as refusal:
        open_regular_file(opened, tree, "fifo")

    assert is_absence(refusal.value)


def test_a_socket_is_refused(opened, tree, tmp_path, monkeypatch):
    """What is not a regular file is not ours, whatever error its kind gives."""
    monkeypatch.chdir(tmp_path / "root")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")

        with pytest.raises(OSError, match=r".") as refusal:
            open_regular_file(opened, tree, "socket")

    assert is_absence(refusal.value)


def test_a_device_is_refused(opened):
    """Reading a device can have effects, or no end."""
    devices = os.open("/dev", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="regular") as refusal:
            open_regular_file(opened, devices, "zero")
    finally:
        os.close(devices)

    assert is_absence(refusal.value)


def test_a_link_to_a_directory_is_no_directory(opened, tree):
    """The walk steps down through descriptors; this is the step that a swap attacks."""
    with pytest.raises(OSError, match=r".") as refusal:
        open_directory(opened, tree, "link_dir")

    assert is_absence(refusal.value)


def test_a_file_without_permission_is_not_absent():
    """What could not be read must make the answer incomplete."""
    assert not is_absence(PermissionError(13, "denied"))


def test_refusals_leak_no_descriptor(opened, tree):
    """A corpus full of links must not use up the process's descriptors."""
    before = open_descriptors()
    for name in ("fifo", "link_dir/outside.txt", "inner/missing", "inner/file.txt/deeper", "../x"):
        with pytest.raises(OSError, match=r"."):
            open_regular_file(opened, tree, name)

    assert open_descriptors() == before
