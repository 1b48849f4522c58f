"""Bodies on their way out: slices of pages, read once and kept while they are likely to be asked for again.

No body is parsed or copied on its own: neighbours in a page leave as one slice.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence

from fila import limits
from fila.core.outcome import Delivery
from fila.errors import StoreCorruptError, StoreError
from fila.storage import keys, records
from fila.storage.store import Family, Store

PageKey = tuple[int, int]


class Bodies:
    """Reads pages through a cache of fixed size."""

    def __init__(self, store: Store, cache_bytes_max: int = limits.PAGE_CACHE_BYTES) -> None:
        self._store = store
        self._cache_bytes_max = cache_bytes_max
        self._cache_bytes = 0
        # Oldest first. Deliveries of many keys go back and forth between pages; age is as good a guess as use, and cheaper.
        self._pages: OrderedDict[PageKey, records.Page] = OrderedDict()

    def slices(self, delivery: Delivery) -> list[bytes]:
        """Return pieces whose concatenation is all bodies of a delivery, in order. Raises StoreError."""
        pages = self._pages_of(delivery)
        slices: list[bytes] = []
        first = -1
        begin = end = 0
        value = b""
        bounds: Sequence[int] = ()
        for offset, page_first in zip(delivery.offsets, delivery.pages, strict=True):
            if page_first != first:
                if begin != end:
                    slices.append(value[begin:end])
                first = page_first
                value, bounds = pages[first]
                begin = end = 0
            place = offset - first
            start = bounds[place]
            if start != end:
                if begin != end:
                    slices.append(value[begin:end])
                begin = start
            end = bounds[place + 1]
        if begin != end:
            slices.append(value[begin:end])
        return slices

    def unreadable(self, delivery: Delivery) -> dict[int, StoreError]:
        """Return the pages of a delivery that cannot be read, and why."""
        errors = {}
        for first in dict.fromkeys(delivery.pages):
            try:
                if (delivery.queue, first) not in self._pages:
                    self._read(delivery.queue, first)
            except StoreError as error:
                errors[first] = error
        return errors

    def _pages_of(self, delivery: Delivery) -> dict[int, records.Page]:
        """Return the pages of a delivery. Those that it takes whole are not kept: they will hardly be asked for again."""
        queue = delivery.queue
        kept = self._pages
        pages = {}
        for first, count in Counter(delivery.pages).items():
            page = kept.get((queue, first))
            if page is None:
                page = self._read(queue, first)
                if count < len(page.bounds) - 1:
                    self.keep(queue, first, page)
            elif count == len(page.bounds) - 1:
                self._drop(queue, first)
            pages[first] = page
        return pages

    def _read(self, queue: int, first: int) -> records.Page:
        key = keys.offset_key(queue, first)
        value = self._store.get(Family.MESSAGES, key)
        if value is None:
            raise StoreCorruptError(
                f"the page {key.hex()} of the store is missing: restore the data directory from a backup"
            )
        return records.decode_page(key, value)

    def _drop(self, queue: int, first: int) -> None:
        self._cache_bytes -= len(self._pages.pop((queue, first)).value)

    def keep(self, queue: int, first: int, page: records.Page) -> None:
        """Take a page into the cache; the oldest make room."""
        pages = self._pages
        pages[queue, first] = page
        self._cache_bytes += len(page.value)
        while self._cache_bytes > self._cache_bytes_max and len(pages) > 1:
            self._cache_bytes -= len(pages.popitem(last=False)[1].value)
