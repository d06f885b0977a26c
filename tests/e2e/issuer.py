# SPDX-License-Identifier: Apache-2.0
"""An issuer of tokens for tests: keys of every kind, tokens signed well or badly, and a server of its key set."""
import base64
import datetime
import hashlib
import hmac
import http.server
import ipaddress
import json
import ssl
import threading
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.x509.oid import NameOID

ISSUER = "https://issuer.example"
AUDIENCE = "sandglass"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, length=None):
    return base64url(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))


class Key:
    """One signing key: RS256, ES256 or EdDSA."""

    def __init__(self, algorithm, kid):
        self.algorithm = algorithm
        self.kid = kid
        if algorithm == "RS256":
            self.private = rsa.generate_private_key(65537, 2048)
        elif algorithm == "ES256":
            self.private = ec.generate_private_key(ec.SECP256R1())
        else:
            self.private = ed25519.Ed25519PrivateKey.generate()

    def jwk(self):
        public = self.private.public_key()
        if self.algorithm == "RS256":
            numbers = public.public_numbers()
            shape = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
        elif self.algorithm == "ES256":
            numbers = public.public_numbers()
            shape = {"kty": "EC", "crv": "P-256", "x": number(numbers.x, 32), "y": number(numbers.y, 32)}
        else:
            raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
            shape = {"kty": "OKP", "crv": "Ed25519", "x": base64url(raw)}
        return {**shape, "kid": self.kid, "use": "sig", "alg": self.algorithm}

    def public_pem(self):
        return self.private.public_key().public_bytes(serialization.Encoding.PEM,
                                                      serialization.PublicFormat.SubjectPublicKeyInfo)

    def sign(self, data):
        if self.algorithm == "RS256":
            return self.private.sign(data, padding.PKCS1v15(), hashes.SHA256())
        if self.algorithm == "ES256":
            r, s = utils.decode_dss_signature(self.private.sign(data, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        return self.private.sign(data)


def assemble(header, payload, sign):
    head = base64url(json.dumps(header).encode()) + "." + base64url(json.dumps(payload).encode())
    return head + "." + base64url(sign(head.encode()))


def claims(**changes):
    now = time.time()
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 300, **changes}
    return {name: value for name, value in good.items() if value is not None}


def token(key, header=None, **changes):
    return assemble({"alg": key.algorithm, "typ": "JWT", "kid": key.kid, **(header or {})}, claims(**changes), key.sign)


def token_without_signature(key, algorithm="none", **changes):
    return assemble({"alg": algorithm, "kid": key.kid}, claims(**changes), lambda data: b"")


def token_by_public_key(key, **changes):
    """The classic confusion: a MAC whose secret is the public key."""
    def sign(data):
        return hmac.new(key.public_pem(), data, hashlib.sha256).digest()
    return assemble({"alg": "HS256", "kid": key.kid}, claims(**changes), sign)


def jwks(*keys):
    return json.dumps({"keys": [key.jwk() for key in keys]})


class KeyServer:
    """Serves a key set over HTTP or HTTPS and counts how often it is asked for."""

    def __init__(self, text, certificate=None):
        self.text = text
        self.status = 200
        self.requests = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests += 1
                body = outer.text.encode()
                self.send_response(outer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.chain, certificate.key)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.scheme = "https"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server.server_address[1]}/keys.json"

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Certificate:
    """A certificate for 127.0.0.1 that signs itself, with its key, as files."""

    def __init__(self, directory, name="sandglass test"):
        self.chain = directory / f"{name.replace(' ', '-')}.pem"
        self.key = directory / f"{name.replace(' ', '-')}.key"
        private = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.utcnow()
        built = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
                 .public_key(private.public_key()).serial_number(x509.random_serial_number())
                 .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
                 .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                                                             x509.DNSName("localhost")]), False)
                 .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
                 .sign(private, hashes.SHA256()))
        self.chain.write_bytes(built.public_bytes(serialization.Encoding.PEM))
        self.key.write_bytes(private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                   serialization.NoEncryption()))
        self.serial = built.serial_number
