"""Write every byte on a network interface to a file until SIGTERM: python capture.py INTERFACE FILE

A file with the suffix .ready beside FILE shows that the capture has started.
"""

import signal
import socket
import sys
from pathlib import Path

ALL_PROTOCOLS = 0x0003

interface, file = sys.argv[1], Path(sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as packets, file.open("wb") as kept:
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    packets.bind((interface, 0))
    file.with_suffix(".ready").touch()
    while True:
        kept.write(packets.recv(1 << 16))
        kept.flush()
