class BadFrameSize(ValueError):
    size: int
    limit: int
    def __init__(self, size: int, limit: int) -> None: ...

def split(
    view: memoryview, start: int, end: int, most: int, limit: int
) -> tuple[list[memoryview], int, int]: ...
