"""Pools of worker processes that the ranks of one machine share.

May import `_pool` and the folders below it.  `gristmill.host` is its public module.

========================  ============================================================
`shared_loader.py`        shares a `gristmill.DataLoader`
`shared_chain.py`         shares a chain of datasets
`shared_torch_loader.py`  shares a torch loader
`launch_variables.py`     the rank of a process, from the program that has started it
`mode.py`                 how ranks divide the outputs
`backend.py`              the workers of a loader that uses a pool
`torch_workers.py`        the same for a torch loader
`pooled_fetch.py`         the program of a torch loader in a pool
`programs.py`             the programs of ranks; a pool loads one of them
`client.py`               the pool, from the view of a rank; starts it if needed
`lanes.py`                the threads of a rank that have units computed
`membership.py`           a rank's connection to one server
`address.py`              the name, and the socket, by which ranks find the pool
`messages.py`             messages between the processes
`unit_packets.py`         packets for units: the requests and the results
`server.py`               hands units to workers, and results to ranks
`server_process.py`       the process of the server
`jobs.py`                 the ranks that are connected to the server, and their lanes
`joining.py`              the comparison of ranks
`units.py`                the units that ranks request, and how long they are kept
`zygote.py`               the process that loads the program and forks the workers
`pool_worker.py`          a worker
`slot_views.py`           arrays on the memory of the pool
========================  ============================================================
"""
