"""SGLang as rollout engine: one server per instance, a child of the rollout rank, spoken to over HTTP.

engine.py   SGLangEngine: chunks in flight, a server that is watched and started again, behind the Engine Protocol
life.py     one server from its start to its end
server.py   the server's process: its command, its environment, its log
client.py   the HTTP calls, each with its status checked
wire.py     a chunk as SGLang's request; no I/O
reply.py    SGLang's reply as a result; no I/O
drafting.py  what a server that drafts is told
counted.py  what it has counted of its drafts
relay.py    weights: from this rank to the processes of its server

What runs inside the server is sestina.sglang_plugin.
"""

SUPPORTED = "0.5.23"
"""The version of SGLang that sestina.sglang_plugin knows the inside of."""

ON_CPU = "SGLANG_USE_CPU_ENGINE"
"""SGLang's own switch: with "1" it takes this machine for one without a GPU."""
