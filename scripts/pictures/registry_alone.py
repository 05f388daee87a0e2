"""The tests' schema registry as a program: says its address, and serves until it is ended."""

import signal

from registry import Registry

ENDS = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # a shell's job ignores SIGINT where it is not blocked
print(Registry().url, flush=True)
signal.sigwait(ENDS)
