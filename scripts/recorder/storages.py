"""Storage identity and exact frees, for torch 1.13 (polled) and torch >= 2.2 (weak-reference callbacks)."""

import weakref

import torch

TORCH = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])
# Since PR #109039 a storage keeps one Python object for its whole life, so weakref works from 2.2 on.
HAS_STORAGE_WEAKREF = TORCH >= (2, 2)


def untyped(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()


class StorageTable:
    """Maps live StorageImpl addresses to ids that are never reused; queues ids whose storage died.

    Holds no strong reference to a storage. For 1.13 a weak StorageImpl reference keeps the address
    from being reused until the free was collected; with callbacks the address is forgotten at once.
    """

    def __init__(self):
        self._ids = {}      # StorageImpl address -> id
        self._refs = {}     # id -> weak reference (either kind)
        self._dead = []     # ids in the order of their death (callbacks only)
        self.bytes = {}     # id -> last known size, live storages only
        self.count = 0

    def find(self, storage):
        return self._ids.get(storage._cdata)

    def add(self, storage):
        """Gives a storage that find() does not know the next id."""
        sid, address = self.count, storage._cdata
        self.count += 1
        self._ids[address] = sid
        if HAS_STORAGE_WEAKREF:
            def died(_, sid=sid, address=address, ids=self._ids, refs=self._refs, dead=self._dead):
                del ids[address], refs[sid]
                dead.append(sid)
            self._refs[sid] = weakref.ref(storage, died)
        else:
            self._refs[sid] = (address, storage._weak_ref())
        self.bytes[sid] = storage.nbytes()
        return sid

    def collect(self):
        """(id, bytes) of those that died since the last call: exact order with callbacks, else ascending."""
        if HAS_STORAGE_WEAKREF:
            dead, self._dead[:] = list(self._dead), []
        else:
            expired = torch.UntypedStorage._expired
            dead = [sid for sid, (_, ref) in self._refs.items() if expired(ref)]
            for sid in dead:
                address, ref = self._refs.pop(sid)
                del self._ids[address]
                torch.UntypedStorage._free_weak_ref(ref)
        return [(sid, self.bytes.pop(sid)) for sid in dead]
