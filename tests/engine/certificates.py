# SPDX-License-Identifier: Apache-2.0
"""Certificates for an engine that is reached over TCP: an authority, the engine's for 127.0.0.1, a client's, and one of a stranger."""
import subprocess


def make(directory):
    """Writes ca.pem, server.pem, client.pem, stranger.pem and a key for each, NAME-key.pem."""
    for name, subject in (("ca", "/CN=an authority"), ("other", "/CN=another authority")):
        openssl(directory, "req", "-x509", *NEW_KEY, f"{name}-key.pem", "-out", f"{name}.pem", "-days", "2", "-subj", subject)
    for name, authority, usage in (("server", "ca", "serverAuth"), ("client", "ca", "clientAuth"), ("stranger", "other", "clientAuth")):
        openssl(directory, "req", *NEW_KEY, f"{name}-key.pem", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (directory / "extensions").write_text(f"extendedKeyUsage={usage}\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n")
        openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}-key.pem", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "2", "-extfile", "extensions")
    return directory


def settings(directory):
    """Of an engine that takes only clients with a certificate of the authority."""
    return {"tls": True, "tlsverify": True, "tlscacert": f"{directory}/ca.pem", "tlscert": f"{directory}/server.pem",
            "tlskey": f"{directory}/server-key.pem"}


NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout"]


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], cwd=directory, capture_output=True, check=True)
