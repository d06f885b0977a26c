# SPDX-License-Identifier: Apache-2.0
"""What the command line does without a daemon, or to find one."""
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from conftest import BUILD, SANDGLASS, our_processes, wait_for

KNOWN = ["run", "exec", "execute", "session", "ls", "ps", "inspect", "logs", "cp", "rm", "why", "serve", "doctor",
         "config", "version", "completion", "help"]


def listed_commands():
    """What the help lists: commands stand two columns to the right, options further."""
    lines = subprocess.run([SANDGLASS, "--help"], capture_output=True, text=True).stdout.splitlines()
    words = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    return [word for word in words if not word.startswith("-")]


COMMANDS = listed_commands()


def cli(*arguments, environment=None, stdin=None, timeout=60):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SANDGLASS_")}
    return subprocess.run([SANDGLASS, *map(str, arguments)], input=stdin, capture_output=True, text=True,
                          timeout=timeout, env={**variables, **(environment or {})})


@pytest.fixture
def nobody(tmp_path):
    """An environment in which the default socket is one where nobody listens."""
    config = tmp_path / "sandglass.yaml"
    config.write_text(f"listen: [\"unix:{tmp_path}/none.sock\"]\n")
    return {"SANDGLASS_CONFIG": str(config), "TMPDIR": str(tmp_path)}


# --- help, version ---------------------------------------------------------------------------------


def test_help_lists_every_command():
    assert set(KNOWN) <= set(COMMANDS)
    assert cli("--help").stdout == cli("-h").stdout == cli("help").stdout
    assert cli("--help").returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = cli(command, "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"usage: sandglass {command}")
    assert cli("help", command).stdout == result.stdout


def test_help_of_a_command_below_another():
    assert cli("help", "session", "extend").stdout.startswith("usage: sandglass session extend --timeout T")
    assert cli("session", "ls", "--help").stdout.startswith("usage: sandglass session ls")


def test_the_version_is_one_line():
    assert cli("version").stdout == cli("--version").stdout
    assert cli("version").stdout.startswith("sandglass ")
    assert json.loads(cli("--json", "version").stdout)["version"] in cli("version").stdout


# --- wrong usage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, code, message", [
    ([], 2, "missing command"),
    (["exce"], 2, 'did you mean "exec"?'),
    (["banana"], 2, 'unknown command "banana"'),
    (["session", "crate"], 2, 'did you mean "create"?'),
    (["session"], 2, "session needs a command"),
    (["ls", "--lable", "a=b"], 2, "did you mean --label?"),
    (["--no-such"], 2, "unknown option --no-such"),
    (["ls", "--label"], 2, "--label needs a value"),
    (["rm"], 2, "rm needs sessions"),
    (["completion", "tcsh"], 2, "bash, zsh or fish"),
    (["exec", "--timout", "1", "s", "--", "x"], 125, "did you mean --timeout?"),
    (["run"], 125, "run needs a command"),
    (["execute", "stray"], 125, "not a file; give code with --code"),
])
def test_wrong_usage_is_said_with_what_was_meant(arguments, code, message):
    result = cli(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert message in result.stderr
    document = json.loads(cli("--json", *arguments).stdout)
    assert document["error"]["code"] == "usage" and message in document["error"]["message"]


# --- no daemon -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, code", [(["ls"], 1), (["inspect", "x"], 1), (["rm", "x", "y"], 1),
                                             (["exec", "x", "--", "true"], 125), (["execute", "--code", "1"], 125),
                                             (["cp", "x:y", "/tmp/sandglass-never"], 1)])
def test_no_daemon_is_one_line_that_says_how_to_start_it(arguments, code, tmp_path):
    url = f"unix:{tmp_path}/none.sock"
    result = cli(*arguments, environment={"SANDGLASS_URL": url})
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr == f"sandglass: no daemon at {url}; start one with 'sandglass serve'\n"
    by_option = cli("--url", "127.0.0.1:1", "ls")
    assert by_option.stderr == "sandglass: no daemon at 127.0.0.1:1; start one with 'sandglass serve'\n"
    document = json.loads(cli("--json", *arguments, environment={"SANDGLASS_URL": url}).stdout)
    assert document["error"]["code"] == "daemon_not_running"


def test_the_settings_say_where_the_default_socket_is(nobody):
    result = cli("ls", environment=nobody)
    assert nobody["SANDGLASS_CONFIG"].replace("sandglass.yaml", "none.sock") in result.stderr


@pytest.mark.parametrize("kind", ["direct", "native"])
def test_run_without_a_daemon_brings_its_own_and_leaves_nothing(nobody, work, kind):
    environment = {**nobody, "TMPDIR": str(work)}
    result = cli("run", "--backend", kind, "-i", "--", "sh", "-c", "cat; echo err >&2; exit 4",
                 environment=environment, stdin="through")
    assert (result.stdout, result.stderr, result.returncode) == ("through", "err\n", 4)
    assert list(work.iterdir()) == []


def test_run_with_a_private_daemon_is_interrupted_and_leaves_nothing(nobody, work):
    process = subprocess.Popen([SANDGLASS, "run", "--", "sh", "-c", "echo ready; exec sleep 100"],
                               bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, **nobody, "TMPDIR": str(work)})
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stdout.close()
    process.stderr.close()
    assert list(work.iterdir()) == []


def test_run_that_is_killed_takes_its_private_daemon_along(nobody, work):
    marker = f"echo ready; sleep 100; : {work}"
    process = subprocess.Popen([SANDGLASS, "run", "--", "sh", "-c", marker],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env={**os.environ, **nobody, "TMPDIR": str(work)})
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.wait()
    process.stdout.close()
    wait_for(lambda: not [one for one in our_processes(work).values() if marker in one], "the end of the private daemon")
    assert list(work.glob("*/state/sandboxes/*")) == []


def test_run_without_a_daemon_cannot_keep(nobody):
    result = cli("run", "--keep", "--", "true", environment=nobody)
    assert result.returncode == 125 and "sandglass serve" in result.stderr


def test_run_with_a_url_brings_no_daemon(tmp_path):
    result = cli("run", "--url", f"unix:{tmp_path}/none.sock", "--", "true")
    assert result.returncode == 125 and "no daemon at" in result.stderr


# --- config ----------------------------------------------------------------------------------------


def test_config_show_says_where_each_setting_came_from(tmp_path):
    config = tmp_path / "s.yaml"
    config.write_text("session:\n  idle_timeout: 7m\n")
    text = cli("config", "show", "--config", config).stdout
    assert "7m" in text and str(config) in text
    document = json.loads(cli("config", "show", "--json", "--config", config).stdout)
    assert document["session.idle_timeout"]["value"] == 420
    assert str(config) in document["session.idle_timeout"]["origin"]


def test_config_check_refuses_with_the_place_and_the_nearest_key(tmp_path):
    config = tmp_path / "s.yaml"
    config.write_text("session:\n  idle_timeot: 7m\n")
    result = cli("config", "check", "--config", config)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"{config}:2" in result.stderr and "idle_timeout" in result.stderr
    config.write_text(f"state_dir: {tmp_path}/state\nsession:\n  idle_timeout: 7m\n")
    assert cli("config", "check", "--config", config).returncode == 0


def test_config_describe_has_every_setting_of_show():
    described = cli("config", "describe").stdout
    for key in json.loads(cli("config", "show", "--json").stdout):
        assert f"{key}\n" in described
    manual = cli("config", "describe", "--man").stdout
    assert ".TP\n.B session.idle_timeout\n" in manual
    listed = json.loads(cli("config", "describe", "--json").stdout)["settings"]
    assert "session.idle_timeout" in [each["key"] for each in listed]


# --- the manual page -------------------------------------------------------------------------------


def test_the_manual_page_has_every_command_and_setting():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    page = subprocess.run([root / "packaging" / "make-man", SANDGLASS], capture_output=True, text=True, check=True).stdout
    for command in COMMANDS:
        assert f".SS {command} ".replace("-", "\\-") in page
    assert ".B session.idle_timeout\n" in page and "@" not in page.replace("user@", "").replace("password@", "")
    if shutil.which("groff"):
        checked = subprocess.run(["groff", "-ww", "-man", "-Tutf8"], input=page, capture_output=True, text=True)
        assert checked.stderr == ""


# --- doctor ----------------------------------------------------------------------------------------


def test_doctor_says_what_is_ok_and_what_to_do(nobody, tmp_path):
    result = cli("doctor", environment=nobody)
    lines = result.stdout.splitlines()
    checks = {line[6:22].strip(): line[:5].strip() for line in lines if line[:5].strip() in ("ok", "info", "warn", "fail")}
    assert {"kernel", "namespaces", "cgroups", "overlayfs", "landlock", "seccomp", "open files", "disk space",
            "state dir", "runtime dir", "daemon"} <= set(checks)
    assert checks["daemon"] == "warn" and "sandglass serve" in result.stdout
    document = json.loads(cli("doctor", "--json", environment=nobody).stdout)
    assert {check["name"]: check["status"] for check in document["checks"]} == checks
    assert document["ok"] == (result.returncode == 0)


def test_doctor_fails_when_the_settings_do_not_hold(tmp_path):
    config = tmp_path / "s.yaml"
    config.write_text("no_such_setting: 1\n")
    result = cli("doctor", "--config", config)
    assert result.returncode == 1 and "no_such_setting" in result.stdout


def test_doctor_finds_a_daemon(make_daemon):
    daemon = make_daemon(backend="direct")
    assert f"running at {daemon.url}" in daemon.cli("doctor").stdout


@pytest.mark.parametrize("power, native", [((), "ok"), (("--bounding-set=-all", "--inh-caps=-all"), "warn")])
def test_doctor_in_a_pod_says_which_shapes_it_allows(nobody, work, power, native):
    """Whatever the daemon of the pod is set to."""
    settings = {"SANDGLASS_SANDBOX_BACKEND": "none", "KUBERNETES_SERVICE_HOST": "10.96.0.1", **nobody, "TMPDIR": str(work)}
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SANDGLASS_")} | settings
    result = subprocess.run(["setpriv", *power, SANDGLASS, "doctor", "--json"], env=variables, capture_output=True, text=True, timeout=60)
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert (found["pod: native"]["status"], found["pod: direct"]["status"]) == (native, "ok"), found
    assert native == "ok" or "procMount: Unmasked" in found["pod: native"]["remedy"]
    assert "pod: native" not in cli("doctor", environment=nobody).stdout


# --- completion ------------------------------------------------------------------------------------


def complete(line, environment=None):
    """What bash offers for the line, by the script itself."""
    words = line.split(" ")
    script = cli("completion", "bash").stdout + f"""
COMP_WORDS=({' '.join(f"'{word}'" for word in words)})
COMP_CWORD={len(words) - 1}
_sandglass
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    variables = {**os.environ, **(environment or {}), "PATH": f"{SANDGLASS.parent}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=variables).stdout.split()


def test_bash_completes_commands_options_and_choices():
    assert complete("sandglass ") == COMMANDS
    assert complete("sandglass ex") == ["exec", "execute"]
    assert complete("sandglass session ") == ["create", "ls", "inspect", "extend", "sandbox", "pause", "resume", "teardown", "rm"]
    assert complete("sandglass session create --mem") == ["--memory"]
    assert complete("sandglass run --network ") == ["none", "open"]
    assert complete("sandglass exec s -- ") == []


def test_bash_completes_sessions(make_daemon):
    daemon = make_daemon(backend="direct")
    session = daemon.session()
    assert complete("sandglass rm ", {"SANDGLASS_URL": daemon.url}) == [session]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_name_every_command(shell, tmp_path):
    text = cli("completion", shell).stdout
    for command in COMMANDS:
        assert command in text
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(text)
        subprocess.run([shell, "-n", script], check=True)


# --- serve -----------------------------------------------------------------------------------------


def test_serve_refuses_settings_that_do_not_hold(tmp_path):
    result = cli("serve", "--set", "session.idle_timeout=never", "--state", tmp_path / "state")
    assert result.returncode != 0 and "session.idle_timeout" in result.stderr


def test_serve_ends_on_a_signal(work):
    socket = pathlib.Path(work) / "run" / "s.sock"
    process = subprocess.Popen([SANDGLASS, "serve", "--backend", "direct", "--state", work / "state",
                                "--listen", f"unix:{socket}", "--set", "shutdown.policy=destroy"], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: cli("--url", f"unix:{socket}", "ls").returncode == 0, "the daemon serves")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_init_can_be_unpacked(work):
    """What init containers of a SandboxTemplate do: all of the program, once or again, and a clear word where it cannot be."""
    place = work / "bin"
    place.mkdir()
    for _ in range(2):
        subprocess.run([SANDGLASS, "unpack-init", place], check=True)
    program = place / "sandglass-init"
    assert [path.name for path in place.iterdir()] == ["sandglass-init"] and program.stat().st_mode & 0o777 == 0o555
    assert program.read_bytes() == (BUILD / "sandglass-init").read_bytes()
    refused = subprocess.run([SANDGLASS, "unpack-init", work / "missing"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "missing" in refused.stderr
    assert subprocess.run([SANDGLASS, "unpack-init"], capture_output=True, check=False).returncode == 2
