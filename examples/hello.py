from verbena import verbs

with verbs.open_device("shm") as ctx, ctx.alloc_pd() as pd, ctx.create_cq(depth=16) as cq:
    server, client = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    server.connect_to(client.endpoint)
    client.connect_to(server.endpoint)

    shared, local = pd.allocate(5), pd.allocate(5)
    memoryview(shared)[:] = b"hello"
    client.sync.read(local, shared.remote)  # one-sided: the server does nothing
    print("client read", bytes(memoryview(local)))

    memoryview(local)[:] = b"world"
    client.sync.write(local, shared.remote)
    print("server sees", bytes(memoryview(shared)))
