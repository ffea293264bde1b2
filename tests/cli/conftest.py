"""The command line in this process."""

import pytest

from gossamer.cli import main


@pytest.fixture
def gossamer(capsys):
    """Run a command that must end with exit code `code`; returns standard output and standard error."""

    def gossamer(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert ended.value.code == code, err
        return out, err

    return gossamer
