"""The programs in the README and the documents run."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What is read together: the later texts go on from the earlier ones.
TEXTS = {
    "readme": ["README.md"],
    "docs": ["docs/quickstart.md", "docs/troubleshooting.md"],
    "record files": ["docs/record-files.md"],
    "datasets": ["docs/datasets.md"],
    "torch": ["docs/torch.md"],
}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", TEXTS)
def test_programs_run(tmp_path, name):
    for module in ("jax", "orbax.checkpoint", "torch"):
        pytest.importorskip(module)
    blocks = [
        block
        for text in TEXTS[name]
        for block in BLOCK.findall((ROOT / text).read_text())
    ]
    assert len(blocks) > 1
    script = tmp_path / "script.py"
    script.write_text("\n".join(blocks).replace("/tmp/run", str(tmp_path / "run")))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["README.md", *map(str, ROOT.glob("docs/*.md"))])
def test_links_lead_somewhere(text):
    file = ROOT / text
    for target in re.findall(r"\]\(([^)#]+)\)", file.read_text()):
        assert "://" in target or (file.parent / target).exists(), target
