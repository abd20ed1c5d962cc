"""The command line as a whole: exit codes, and one sentence on bad input."""

import pytest

from rtl.catalogue import BLOCKS
from scripts.main import COMMANDS, main


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])

    assert stop.value.code == 0
    assert f"kvsmith {command}" in capsys.readouterr().out.partition("example")[2]


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (
            ["generate", "nothing"],
            f"Unknown block 'nothing': known are {', '.join(BLOCKS)}",
        ),
        (["generate", "ris", "--set", "ways=5"], "ris: Ways must be one of 4, 8, 16, 32, not 5"),
        (["demo", "--trace", "nowhere.npz"], "nowhere.npz: no such file or directory"),
        (
            ["trace", "--info", "pyproject.toml"],
            "pyproject.toml is no trace, or is damaged (not an .npz archive); "
            "capture one with `kvsmith trace`",
        ),
    ],
)
def test_bad_input_gives_one_sentence_and_exit_code_2(
    arguments, sentence, capsys, monkeypatch, request
):
    monkeypatch.chdir(request.config.rootpath)

    assert main(arguments) == 2
    assert capsys.readouterr().err == f"kvsmith: {sentence}\n"


def test_interrupt_gives_exit_code_130(capsys, monkeypatch):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("scripts.list.run", interrupted)

    assert main(["list"]) == 130
    assert capsys.readouterr().err == "kvsmith: interrupted\n"
