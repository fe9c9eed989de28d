"""A process that writes a controller's book as fast as it can, and says what returned.

Usage: python book_writer.py BOOK PAUSE_SECONDS. For each number it adds a notice, reserves a replicate, takes an
override and ends it, and marks the notice as sent; after each it prints the word and the number. It goes on after the
numbers it finds.
"""

import sys
import time

from prefillgate.api.store_address import store_address
from prefillgate.evidence.book import open_book
from prefillgate.evidence.book_rows import HandledOverride, Notice, Replicates


def main(where: str, pause_seconds: float) -> None:
    book = open_book(store_address(where))
    number = len(book.replicates("old", "new"))
    print("ready", flush=True)

    def said(word: str) -> None:
        print(word, number, flush=True)

    while True:
        key = f"{number:06d}"
        book.add_notice(Notice(key, "line", None, "Promoted", "body", float(number), 0.0))
        said("added")
        given = book.reserve_replicates(Replicates("old", "new", key, 1, 2, float(number)))
        assert given.first == 2 * number + 1, given
        said("reserved")
        if book.take_override(HandledOverride(key, "line", None, "promote", "ann", True, "why", float(number))):
            said("taken")
            book.override_done(key, "Promoted", float(number))
            said("done")
        book.notice_sent(key, float(number))
        said("sent")
        number += 1
        time.sleep(pause_seconds)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
