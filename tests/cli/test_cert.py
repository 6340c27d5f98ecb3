"""`verbena cert`: from nothing to a node's certificate in two commands."""

from __future__ import annotations

import pytest
from support.rdma.iwarp_tls import MISSING

from verbena.cli import main
from verbena.transport.handshake import authority

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def test_init_issue_and_revoke(tmp_path, capsys):
    """Each command prints the files that it wrote and their use."""
    folder = str(tmp_path / "tls")
    assert main(["cert", "init", "--folder", folder]) == 0
    assert main(["cert", "issue", "node1", "--name", "node1", "--name", "10.0.0.1", "--folder", folder]) == 0
    assert main(["cert", "revoke", f"{folder}/node1.pem", "--folder", folder]) == 0
    said = capsys.readouterr().out
    for words in ("ca.key: CA key;", "node1.pem: certificate for node1, 10.0.0.1, valid until ", "copy it"):
        assert words in said


def test_issue_defaults_to_this_host(tmp_path, capsys):
    """Without a name the certificate is for this host, localhost and its addresses."""
    folder = str(tmp_path)
    main(["cert", "init", "--folder", folder])
    assert main(["cert", "issue", "--folder", folder, "--days", "2"]) == 0
    said = capsys.readouterr().out
    assert "localhost, " in said
    assert "127.0.0.1" in said


def test_wrong_use_prints_the_reason(tmp_path, capsys):
    """A missing authority, a second one, and revoke without a certificate print a reason and exit with a
    status other than 0."""
    folder = str(tmp_path)
    assert main(["cert", "issue", "node1", "--folder", folder]) == 1
    assert "verbena cert init" in capsys.readouterr().err
    assert main(["cert", "init", "--folder", folder]) == 0
    assert main(["cert", "init", "--folder", folder]) == 1
    assert "already" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["cert", "revoke", "--folder", folder])


def test_the_help_names_the_default_lifetimes(capsys):
    """The help does not load the authority's code, so it repeats its constants."""
    with pytest.raises(SystemExit):
        main(["cert", "--help"])
    words = f"default: {authority.AUTHORITY_DAYS} for the authority, {authority.NODE_DAYS} for a node"
    assert words in " ".join(capsys.readouterr().out.split())
