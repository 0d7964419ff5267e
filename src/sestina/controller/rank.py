"""One rank of a run: `python -m mpi4py -m sestina.controller.rank ROLE RUN_DIR`.

Imports nothing when it is not the main module: processes that a rank spawns import it again, and must not join MPI.
"""

if __name__ == "__main__":
    from sestina.controller.supervisor import main

    main()
