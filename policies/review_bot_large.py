"""The two long pull requests of the review-bot set: what a team gets when a schema is split or a client is generated.

Each is written out from a table in which every record, field, bound and example was chosen by hand, so the diff is as
long as the real thing and no part of it repeats another. One mistake is planted in each, named in `PLANTED`.
"""

from __future__ import annotations

from collections.abc import Iterator

PLANTED = {
    "11-split-settings": "Carrier.Insert leaves out the column `active`",
    "12-warehouse-client": "releaseHold puts the hold's id into the path without encoding it",
}

#: Go and SQL: record, its sentence, its fields as name:type:bound:example.
RECORDS = (
    (
        "Carrier",
        "a company that moves parcels",
        "code:text:2-8:DHLX name:text:1-80:Northern_Parcel cutoff_minutes:int:0-1439:930 max_grams:int:1-70000:31500"
        " tracking_url:text:8-200:https://track.example/x active:bool::true",
    ),
    (
        "Warehouse",
        "a building goods leave from",
        "code:text:3-6:HAM02 city:text:1-60:Hamburg time_zone:text:3-40:Europe/Berlin dock_count:int:1-120:14"
        " opens_minutes:int:0-1439:360 closes_minutes:int:1-1440:1320",
    ),
    (
        "PickZone",
        "a part of a warehouse one person picks in",
        "label:text:1-12:B-north aisle_from:int:1-400:21 aisle_to:int:1-400:38 temperature:text:4-8:chilled"
        " max_weight_grams:int:100-30000:12000",
    ),
    (
        "PackagingRule",
        "which box a set of articles goes into",
        "priority:int:1-999:40 box_code:text:2-10:CRT-L min_litres:int:0-500:9 max_litres:int:1-500:28"
        " fragile_only:bool::false note:text:0-300:double_wall",
    ),
    (
        "ReturnPolicy",
        "how long and why a customer may send goods back",
        "country:text:2-2:PT days:int:0-365:30 reason_required:bool::true restocking_percent:int:0-100:15"
        " refund_method:text:4-20:original label_paid_by:text:4-10:merchant",
    ),
    (
        "TaxRegion",
        "where a rate of value added tax holds",
        "region:text:2-10:ES-CN standard_basis_points:int:0-3000:700 reduced_basis_points:int:0-3000:300"
        " valid_from:date::2026-07-01 includes_shipping:bool::true",
    ),
    (
        "DeliverySlot",
        "a window a customer can choose",
        "weekday:int:1-7:6 starts_minutes:int:0-1439:540 length_minutes:int:30-480:120 capacity:int:1-2000:85"
        " surcharge_cents:int:0-5000:390",
    ),
    (
        "Supplier",
        "who refills a warehouse",
        "name:text:1-120:Alpine_Textiles vat_number:text:8-14:ATU12345678 lead_days:int:0-180:12"
        " minimum_order_cents:int:0-9000000:45000 email:text:6-254:orders@alpine.example blocked:bool::false",
    ),
)

GO_TYPES = {"text": "string", "int": "int", "bool": "bool", "date": "time.Time"}
SQL_TYPES = {"text": "text", "int": "integer", "bool": "boolean", "date": "date"}


class Field:
    def __init__(self, text: str) -> None:
        self.name, self.kind, bound, example = text.split(":", 3)
        self.low, _, self.high = bound.partition("-")
        self.example = example.replace("_", " ") if self.kind == "text" else example

    @property
    def camel(self) -> str:
        first, *rest = self.name.split("_")
        return first + "".join(word.title() for word in rest)

    @property
    def pascal(self) -> str:
        return "".join(word.title() for word in self.name.split("_"))


def snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def added(path: str, text: str) -> str:
    """A new file as a diff."""
    lines = text.strip("\n").split("\n")
    head = (
        f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
    )
    return head + "".join(f"+{line}\n" for line in lines)


def split_settings() -> str:
    """Go and SQL: one table of JSON settings becomes a table for each kind."""
    parts: list[str] = []
    for number, (record, sentence, text) in enumerate(RECORDS, 101):
        fields = [Field(item) for item in text.split()]
        table = snake(record) + "s"
        parts.append(added(f"db/migrations/{number}_{table}.sql", "\n".join(_migration(table, sentence, fields))))
        parts.append(added(f"settings/{snake(record)}.go", "\n".join(_go_record(record, table, sentence, fields))))
        parts.append(added(f"settings/{snake(record)}_test.go", "\n".join(_go_test(record, fields))))
    return "".join([*parts, added("settings/day_test.go", DAY), added("docs/decisions/0017-settings.md", DECISION)])


def _migration(table: str, sentence: str, fields: list[Field]) -> Iterator[str]:
    yield f"-- {table}: {sentence}. Filled from settings where kind = '{table[:-1]}'."
    yield f"CREATE TABLE {table} ("
    yield "    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    for field in fields:
        check = ""
        if field.kind == "int":
            check = f" CHECK ({field.name} BETWEEN {field.low} AND {field.high})"
        elif field.kind == "text":
            check = f" CHECK (length({field.name}) BETWEEN {field.low} AND {field.high})"
        yield f"    {field.name} {SQL_TYPES[field.kind]} NOT NULL{check},"
    yield "    changed_at timestamptz NOT NULL DEFAULT now()"
    yield ");"
    yield f"INSERT INTO {table} ({', '.join(field.name for field in fields)})"
    columns = ", ".join(f"(body->>'{field.camel}')::{SQL_TYPES[field.kind]}" for field in fields)
    yield f"SELECT {columns} FROM settings WHERE kind = '{table[:-1]}';"


def _go_record(record: str, table: str, sentence: str, fields: list[Field]) -> Iterator[str]:
    yield from ("package settings", "", 'import (\n\t"context"\n\t"database/sql"\n\t"fmt"\n\t"time"\n)', "")
    yield f"// {record} is {sentence}."
    yield f"type {record} struct {{"
    yield "\tID int64"
    for field in fields:
        yield f'\t{field.pascal} {GO_TYPES[field.kind]} `json:"{field.camel}"`'
    yield from ("\tChangedAt time.Time", "}", "")
    yield f"// Validate names the first field of the {snake(record).replace('_', ' ')} that is out of bounds."
    yield f"func (r {record}) Validate() error {{"
    for field in fields:
        if field.kind == "int":
            yield f"\tif r.{field.pascal} < {field.low} || r.{field.pascal} > {field.high} {{"
            yield f'\t\treturn fmt.Errorf("{field.camel} is %d, allowed {field.low} to {field.high}", r.{field.pascal})'
            yield "\t}"
        elif field.kind == "text":
            yield f"\tif n := len([]rune(r.{field.pascal})); n < {field.low} || n > {field.high} {{"
            yield f'\t\treturn fmt.Errorf("{field.camel} has %d characters, allowed {field.low} to {field.high}", n)'
            yield "\t}"
    yield from ("\treturn nil", "}", "")
    written = [field for field in fields if not (record == "Carrier" and field.name == "active")]
    places = ", ".join(f"${place}" for place in range(1, len(written) + 1))
    yield f"// Insert{record} writes a new row and gives its id."
    yield f"func Insert{record}(ctx context.Context, tx *sql.Tx, r {record}) (int64, error) {{"
    yield "\tif err := r.Validate(); err != nil {\n\t\treturn 0, err\n\t}"
    yield f'\tconst query = "INSERT INTO {table} ({", ".join(f.name for f in written)}) VALUES ({places}) RETURNING id"'
    yield f"\terr := tx.QueryRowContext(ctx, query, {', '.join(f'r.{f.pascal}' for f in written)}).Scan(&r.ID)"
    yield from ("\treturn r.ID, err", "}")


def _go_test(record: str, fields: list[Field]) -> Iterator[str]:
    yield from ("package settings", "", 'import "testing"', "")
    yield f"func good{record}() {record} {{"
    yield f"\treturn {record}{{"
    for field in fields:
        value = {"text": f'"{field.example}"', "date": f'day("{field.example}")'}.get(field.kind, field.example)
        yield f"\t\t{field.pascal}: {value},"
    yield from ("\t}", "}", "")
    yield f"func Test{record}Bounds(t *testing.T) {{"
    yield f"\tif err := good{record}().Validate(); err != nil {{\n\t\tt.Fatal(err)\n\t}}"
    for field in fields:
        if field.kind == "int":
            yield f"\twrong := good{record}()\n\twrong.{field.pascal} = {int(field.high) + 1}"
            yield f'\tif wrong.Validate() == nil {{\n\t\tt.Error("{field.camel} {int(field.high) + 1} was taken")\n\t}}'
            break
    yield "}"


DAY = """
package settings

import "time"

// day is midnight in UTC; the examples of the tests are whole days.
func day(text string) time.Time {
\tparsed, err := time.Parse(time.DateOnly, text)
\tif err != nil {
\t\tpanic(err)
\t}
\treturn parsed
}
"""

DECISION = """
# 17. A table for each kind of setting

## Why

The settings table held a kind and a JSON body. Nothing but the reader knew what a body had to look like, so a wrong
type lay there until the reader met it: in March a cutoff of "15:30" instead of 930 minutes kept every parcel of a
carrier in the building over a weekend.

## What

Each kind has a table with a column for every field, bounds in the database and the same bounds in Go. The bounds stand
twice on purpose: the database keeps them for whoever writes with psql, Go names the field to whoever uses the form.

## What it costs

A new field needs a migration. A kind that only one customer uses needs a table as well. We take both: settings change
a few times a year, and are read on every parcel.

## How we go back

The old table is neither changed nor dropped by these migrations. The readers of the last release still work on it.
"""
