# SPDX-License-Identifier: Apache-2.0
"""Every --help has examples that the command itself accepts, and says what happens without an option."""
import json
import re
import shlex
import subprocess

from conftest import SANDGLASS


def cli(*arguments):
    return subprocess.run([SANDGLASS, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def names(text):
    return re.findall(r"^  (\w+) +[A-Z]", text.split("Commands:\n")[1].split("\n\n")[0], re.M)


def commands():
    for name in names(cli("--help").stdout):
        help_text = cli(name, "--help").stdout
        yield [name], help_text
        if "\nCommands:\n" in help_text:
            for below in names(help_text):
                yield [name, below], cli(name, below, "--help").stdout


def test_every_command_has_examples_that_it_accepts():
    seen = 0
    for path, help_text in commands():
        assert "\nExamples:\n" in help_text, path
        for line in help_text.split("\nExamples:\n")[1].splitlines():
            line = line.replace("sudo ", "")
            seen += 1
            assert len(line) <= 100, line
            words = shlex.split(re.search(r"sandglass [^|>)]*(?:\([^)]*\)[^|>)]*)*", line).group(0), posix=True) if "<(" in line or "|" in line or ">" in line \
                else shlex.split(line)
            assert words[0] == "sandglass", line
            at = 2 if len(words) < 3 or not re.search(rf"^  {re.escape(words[2])} ", cli(words[1], "--help").stdout, re.M) else 3
            tried = cli(*words[1:at], "--help", *words[at:])
            assert tried.returncode == 0 and tried.stdout.startswith("usage: "), (line, tried.stderr)
    assert seen > 60


def test_choices_are_named_in_the_help():
    text = " ".join(cli("key", "create", "--help").stdout.split())
    assert "user, approver, admin or delegate" in text
    for option in "--memory", "--network", "--idle-timeout", "--template", "--backend", "--timeout":
        about = re.search(rf"{option} [A-Z]+ .*?(?= --\w| Session options:| Files:)", " ".join(cli("run", "--help").stdout.split())).group(0)
        assert "default" in about, about


def test_the_manual_has_the_examples_too():
    page = cli("help", "--man").stdout
    assert page.count("Examples:") >= 50 and "sandglass run \\-\\-copy ." in page


def test_a_key_is_created_for_an_operand(tmp_path):
    made = cli("key", "create", "ann", "--keys-file", tmp_path / "keys.json", "--json")
    assert json.loads(made.stdout)["principal"] == "ann", made.stderr
    assert cli("key", "create", "--keys-file", tmp_path / "keys.json").returncode == 2
