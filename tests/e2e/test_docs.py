"""What the documentation says is what the program does."""
import re
import subprocess

from conftest import ROOT, SANDGLASS


def test_the_page_of_settings_is_what_the_program_prints():
    page = (ROOT / "docs" / "settings.md").read_text()
    printed = subprocess.run([SANDGLASS, "config", "describe"], capture_output=True, text=True, check=True).stdout
    assert printed.strip() in page, "run scripts/docs"


def test_every_link_in_the_documentation_leads_somewhere():
    broken = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} → {target}")
    assert not broken


def test_every_command_of_the_readme_exists():
    known = subprocess.run([SANDGLASS, "--help"], capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"^  (\w+)  ", known, re.M))
    used = set(re.findall(r"^(?:build/)?sandglass (\w+)", (ROOT / "README.md").read_text(), re.M))
    assert used and used <= names
