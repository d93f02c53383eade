"""The built pages in a real browser: a console is copied as its commands alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.browser.test_report_page import browse

TOP = Path(__file__).parents[2]
#: Does what the theme's button does: it marks a block, and takes its text.
COPY = """<script>
const block = [...document.querySelectorAll('.language-console code, .highlight code')].find(
  one => one.querySelector('.gp') && one.querySelector('.go'));
block.setAttribute('data-md-copying', '');
document.title = JSON.stringify(block.innerText);
</script></body>"""


def test_a_console_is_copied_without_prompts_and_output(tmp_path: Path) -> None:
    public = tmp_path / "public"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(public)],
        cwd=TOP,
        check=True,
        capture_output=True,
    )
    page = public / "tutorial/first-site/index.html"
    text = page.read_text()
    assert "$ </span>" in text, "the page shows prompts"
    page.write_text(text.replace("</body>", COPY))
    out, _ = browse(tmp_path, "--allow-file-access-from-files", "--dump-dom", page.as_uri())
    copied = re.search(r"<title>(.*?)</title>", out)
    assert copied is not None
    assert copied[1].startswith('"lumisite check site.yaml')
    assert "$ " not in copied[1]
    assert "key-unknown" not in copied[1]
