"""One idea per file: 400 lines at most, tests 500."""

from tests.repo.checkout import python_files, relative

MAX_LINES = 400
MAX_TEST_LINES = 500


def test_no_file_is_over_its_cap() -> None:
    over = []
    for path in python_files("."):
        lines = len(path.read_text().splitlines())
        cap = MAX_TEST_LINES if relative(path).startswith("tests/") else MAX_LINES
        if lines > cap:
            over.append(f"{relative(path)}: {lines} lines, {cap} allowed: split by responsibility")
    assert not over, "\n".join(over)
