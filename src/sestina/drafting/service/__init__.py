"""The draft service: what one instance's responses said reaches the drafts of all others (Seer, arXiv 2511.14617).

client.py    DraftClient, what an engine process uses: its index, kept in step with others' without ever waiting
correspondent.py  its exchange with one server, without the socket
responses.py      its index, and what it knows of the responses decoded here and of their siblings elsewhere
takeover.py       what servers send, taken over into the index
entries.py        what a client knows of one group and of one response
exchange.py  a frame and its reply: the server without its sockets
store.py     what a server holds: groups, their time to live, the memory bound; their texts are native/texts.h
wire.py      frames
loop.py      a server's sockets
gate.py      who may connect
keys.py      the run's keys
process.py   a server as the process that starts it sees it; sestina.drafting.server is what it runs
shards.py    all servers of a run, started again when they end
"""
