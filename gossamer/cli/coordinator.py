"""`gossamer coordinator`: who is there, for sites that come and go."""

import signal
import threading

from gossamer._common.formatting import say


def coordinator(*, port: int = 29510, host: str = "127.0.0.1") -> None:
    """Know which sites are there, until it is ended.

    No model and no data passes it. It may be restarted at any time: a run in progress goes on, and only a change of the
    sites waits for it. It has no authentication, so keep it inside the tunnel: whoever reaches it can join the run or
    disturb it.

    Example: gossamer coordinator --host 10.77.0.1 --port 29510

    Parameters
    ----------
    port
        Port to listen on.
    host
        Address of the interface to listen on: this machine only unless given. Use the address inside the tunnel.
    """
    from gossamer.network.sites import serve

    server = serve(host, port)
    say(f"coordinator: listening at {host}:{port}; it has no authentication, so keep it inside the tunnel.")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(1.0):
        pass
    server.shutdown()
    say("coordinator: ended; the sites go on without it until one of them leaves or joins.")
