"""What counts as the same failure."""

import subprocess

from torch._inductor.exc import InductorError

from thunder.diagnose.finding import Finding, Kind


def _of(error, cause=None):
    try:
        raise error from cause
    except (RuntimeError, ValueError, TypeError) as raised:
        return Finding.of_error(raised)


def test_the_cause_counts_not_what_is_around_it():
    one = _of(RuntimeError("region of 98 nodes failed"), ValueError("no such op"))
    other = _of(RuntimeError("region of 3 nodes failed"), ValueError("no such op"))
    assert one.is_like(other)
    assert one.text == "ValueError: no such op"


def test_another_message_or_class_is_another_failure():
    original = _of(ValueError("no such op"))
    assert not _of(ValueError("bad shape")).is_like(original)
    assert not _of(TypeError("no such op")).is_like(original)
    assert not Finding(kind=Kind.PASSES).is_like(original)
    assert not Finding(kind=Kind.CRASHES, signal=-11).is_like(original)


def test_numbered_names_are_the_same_name():
    assert _of(ValueError("relu_2 in buf7")).is_like(_of(ValueError("relu_1 in buf12")))
    assert not _of(ValueError("float32 given")).is_like(_of(ValueError("float16 given")))


def test_what_the_compiler_complains_about_counts():
    text = "C++ compile error\nOutput:\n/tmp/a/{0}.cpp:14:33: error: '{1}' was not declared\n"
    original = _of(RuntimeError(text.format("x", "compile")))
    assert _of(RuntimeError(text.format("y", "compile"))).is_like(original)
    assert not _of(RuntimeError(text.format("y", "other"))).is_like(original)


def test_crashes_differ_by_signal():
    segfault = Finding(kind=Kind.CRASHES, signal=-11)
    assert segfault.is_like(segfault)
    assert not Finding(kind=Kind.CRASHES, signal=-6).is_like(segfault)


def test_the_command_line_of_a_compiler_is_no_cause():
    command = subprocess.CalledProcessError(1, ["g++", "a1b2.cpp"])
    assert _of(RuntimeError("C++ compile error"), command).text == "RuntimeError: C++ compile error"


def test_what_inductor_raises_is_told_by_its_first_line():
    inner = RuntimeError("C++ compile error\nCommand:\ng++ a1b2.cpp")
    try:
        raise InductorError(inner, None) from None
    except InductorError as error:
        assert Finding.of_error(error).type_name == "InductorError"
        assert "a1b2" not in Finding.of_error(error).message_head
