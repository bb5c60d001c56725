"""A local web server that serves ranges, and fails on request."""

import collections
import contextlib
import http.server
import threading


class RangeServer:
    """Serves `files` by name.

    Each GET takes the next of `faults`, if any: a status such as 503; "reset", which
    closes the connection; "cut", which sends an incomplete body; or None for no fault.
    `headers` are sent with error statuses.
    """

    def __init__(self):
        self.files = {}
        # The ETag of each file.
        self.tags = collections.defaultdict(lambda: '"one"')
        self.faults = collections.deque()
        self.headers = {}
        self.serves_ranges = True
        self.serves_sizes = True
        self.barrier = None  # A threading.Barrier at which GETs meet, or None.
        self.gate = None  # A threading.Event that GETs wait for, or None.
        self.gets = []  # (name, first byte, last byte) of each GET; None for all bytes.
        self.heads = []
        self.authorizations = []  # Authorization header of each GET, or None.
        self._http = Server(("127.0.0.1", 0), Handler)
        self._http.owner = self

    def url(self, name):
        return f"http://127.0.0.1:{self._http.server_address[1]}/{name}"

    def serve_forever(self):
        self._http.serve_forever(poll_interval=0.01)

    def shutdown(self):
        self._http.shutdown()
        self._http.server_close()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    owner = None

    def handle_error(self, request, client_address):
        """Ignore clients that disconnect."""


@contextlib.contextmanager
def running():
    server = RangeServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        server = self.server.owner
        name = self.path[1:]
        server.heads.append(name)
        if name not in server.files:
            return self._send(404)
        size = len(server.files[name]) if server.serves_sizes else None
        self._send(200, size=size)

    def do_GET(self):
        server = self.server.owner
        name = self.path[1:]
        content = server.files.get(name)
        byte_range = self.headers["Range"] if server.serves_ranges else None
        first, last = None, None
        if byte_range:
            first, last = map(int, byte_range.removeprefix("bytes=").split("-"))
        server.gets.append((name, first, last))
        server.authorizations.append(self.headers["Authorization"])
        if server.barrier:
            server.barrier.wait()
        if server.gate:
            server.gate.wait(60)
        fault = server.faults.popleft() if server.faults else None
        if fault == "reset":
            self.close_connection = True
        elif isinstance(fault, int):
            self._send(fault, headers=server.headers)
        elif content is None:
            self._send(404)
        elif byte_range and first >= len(content):
            self._send(416)
        else:
            body = content[first : last + 1] if byte_range else content
            self._send(206 if byte_range else 200, body, cut=fault == "cut")

    def _send(self, status, body=b"", *, size=None, headers=None, cut=False):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("ETag", self.server.owner.tags[self.path[1:]])
        if self.server.owner.serves_sizes:
            self.send_header("Content-Length", len(body) if size is None else size)
        else:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True
