"""The draft service: what one instance's responses said reaches the drafts of all others (Seer, arXiv 2511.14617).

client.py    DraftClient, what an engine process uses: its index, kept in step with others' without ever waiting
replica.py   the client without its sockets: groups, what servers lack, what is taken over from them
entries.py   what a client knows of one group and of one response
store.py     the server without its sockets: logs of groups, their time to live, the memory bound
texts.py     one group's log
wire.py      frames
loop.py      a server's sockets
gate.py      who may connect
keys.py      the run's keys
process.py   a server as the process that starts it sees it; sestina.drafting.server is what it runs
"""
