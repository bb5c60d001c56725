import socket

from gristmill import monitoring

bound = socket.socket()
bound.bind(("0.0.0.0", 0))
bound.listen()
print(monitoring.serve(bound.getsockname()[1]))
