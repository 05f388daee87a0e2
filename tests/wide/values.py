"""Types and values as users have them: for each type texts that PostgreSQL takes, the ends of its range among them."""

# type -> texts. Each is written as 'text'::type.
VALUES = {
    "int2": ["0", "-32768", "32767"],
    "int4": ["0", "1", "-2147483648", "2147483647", "42"],
    "int8": ["0", "-9223372036854775808", "9223372036854775807", "9007199254740993"],
    "oid": ["0", "4294967295", "16384"],
    "float4": ["0", "-0", "1.5", "3.4028235e38", "1e-45", "NaN", "Infinity", "-Infinity"],
    "float8": ["0", "-0", "0.1", "1e308", "5e-324", "123456789.123456789", "NaN", "Infinity", "-Infinity"],
    "numeric": ["0", "1.50", "-1e100", "1e-30", "NaN", "Infinity", "-Infinity",
                "12345678901234567890123456789.123456789"],
    "numeric(12,3)": ["0", "1.5", "-999999999.999"],
    "bool": ["true", "false"],
    "text": ["", "x", "\u00e4\u00f6\u00fc \u4f60\u597d \U0001f600", "line\nline\ttab\rend", 'q"uo\'te \\ back\\\\slash', "\x01\x1f\x7f",
             "null", "\u2028\u2029", "{}", "a/b</script>"],
    "varchar(40)": ["", "short", "with trailing blanks   "],
    "char(7)": ["", "abc", "seven77"],
    '"char"': ["", "a", "\\377"],
    "name": ["", "a name", "x" * 63],
    "bytea": ["\\x", "\\x00ff10", "\\x" + "de" * 300],
    "date": ["2026-02-28", "0001-01-01", "4713-01-01 BC", "5874897-12-31", "infinity", "-infinity"],
    "time": ["00:00", "24:00:00", "12:34:56.789012"],
    "timetz": ["00:00+14", "23:59:59.999999-12:30"],
    "timestamp": ["2026-11-21 05:43:03.349519", "0044-03-15 12:00 BC", "294276-12-31 23:59:59", "infinity", "-infinity"],
    "timestamptz": ["2026-11-21 05:43:03.349519+05:30", "1900-01-01 00:00+00", "infinity", "-infinity",
                    "0099-01-01 00:00+00 BC"],
    "interval": ["0", "1 year -2 mons 3 days -04:05:06.7", "-178000000 years", "1 microsecond"],
    "json": ["null", '{"a" : [1, 2.50,"x"],  "a":null}', '"\\u0041\\n"', "[]"],
    "jsonb": ["null", '{"b":1,"a":[1.50,true]}', '"text"', "12345678901234567890.10"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "inet": ["127.0.0.1", "10.1.2.3/8", "::1/128"],
    "cidr": ["10.0.0.0/8", "2001:db8::/32"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "bit(5)": ["10101"],
    "varbit": ["", "1", "10101010101"],
    "money": ["0", "-1234567.89"],
    "point": ["(1.5,-2)"],
    "line": ["{1,2,3}"],
    "lseg": ["[(0,0),(1,1)]"],
    "box": ["(1,1),(0,0)"],
    "path": ["((0,0),(1,1))", "[(0,0),(1,1)]"],
    "polygon": ["((0,0),(1,1),(1,0))"],
    "circle": ["<(0,0),2>"],
    "tsvector": ["'a':1A 'b''c':2", ""],
    "tsquery": ["'a' & !'b'"],
    "int4range": ["empty", "[1,5)", "(,)"],
    "tstzrange": ["[2020-01-01 00:00+00,infinity]", "(,2020-01-01 00:00+00)"],
    "nummultirange": ["{}", "{[1.5,2),(3,)}"],
    "int4[]": ["{}", "{1,NULL,3}", "[0:1]={7,8}", "{{1,2},{3,4}}"],
    "text[]": ["{}", '{"a,b",NULL,"null","q\\"uote"}'],
    "float8[]": ["{NaN,-0,0.1}"],
    "pg_lsn": ["0/0", "16/B374D848"],
    "xid": ["4294967295"],
    "xid8": ["18446744073709551615"],
    "tid": ["(0,1)"],
    "pg_snapshot": ["10:20:10,14"],
    "jsonpath": ["$.a[*]?(@ > 1)"],
    "regtype": ["integer", "text"],
    "regclass": ["pg_class"],
    "w.mood": ["sad", "so so", "happy"],
    "w.pair": ['(1,"a b")', "(,)"],
    "w.positive": ["1", "77"],
    "w.label": ["", "label"],
}

# What a small number makes of a type that may be in a key. Texts as PostgreSQL prints them or not: it prints them.
KEYS = {
    "int4": str, "int8": lambda k: str(k * 1000000007), "int2": lambda k: str(k % 30000),
    "text": lambda k: f"k{k}", "varchar(40)": lambda k: f"v{k} ", "numeric": lambda k: f"{k}.50",
    "uuid": lambda k: f"00000000-0000-4000-8000-{k:012d}", "date": lambda k: f"2{k % 1000:03d}-03-01",
    "timestamptz": lambda k: f"2020-01-01 00:00:00.{k % 1000000:06d}+00", "bytea": lambda k: f"\\x{k:08x}ff00",
    "bool": lambda k: "true" if k % 2 else "false", "char(7)": lambda k: f"c{k % 100000}", "inet": lambda k: f"10.0.{k // 250 % 250}.{k % 250}",
    "w.mood": lambda k: ("sad", "so so", "happy")[k % 3], "float8": lambda k: f"{k}.25", "oid": str,
    "w.label": lambda k: f"label \u00e4\"{k}", "int4range": lambda k: f"[{k},{k + 1})", "jsonb": lambda k: f'{{"k":{k}}}',
    "name": lambda k: f"n{k}", "w.positive": lambda k: str(k + 1), "interval": lambda k: f"{k} days", "int4[]": lambda k: f"{{{k},{k}}}",
}

# The same as an expression of g, for rows by generate_series.
BULK_KEYS = {
    "int4": "g", "int8": "g", "numeric": "g", "text": "'b' || g", "varchar(40)": "'b' || g", "oid": "g",
    "uuid": "md5(g::text)::uuid", "float8": "g + 0.5", "bytea": "decode(md5(g::text), 'hex')",
    "timestamptz": "timestamptz '2001-01-01 00:00+00' + g * interval '1 s'", "date": "date '2001-01-01' + g",
}

# Types whose values may be stored out of line.
LARGE = ("text", "bytea", "jsonb", "text[]")


def literal(text, type_name):
    return "'" + text.replace("'", "''") + "'::" + type_name


def value(chance, type_name, nullable=True):
    """One value as SQL."""
    if nullable and chance.random() < 0.12:
        return "NULL"
    if type_name in LARGE and chance.random() < 0.25:
        return large(chance, type_name)
    return literal(chance.choice(VALUES[type_name]), type_name)


def large(chance, type_name):
    """A value over TOAST's threshold; of what compresses, and of what does not."""
    length = chance.choice([2100, 2500, 9000, 30000])
    letter = chance.choice("abcdefgh")
    if chance.random() < 0.5:
        text = f"repeat('{letter}', {length})"
    else:
        text = f"(SELECT string_agg(md5('{letter}' || i), '') FROM generate_series(1, {length // 32}) i)"
    return {"text": text, "bytea": f"convert_to({text}, 'UTF8')", "jsonb": f"jsonb_build_object('large', {text})",
            "text[]": f"ARRAY[{text}, NULL, 'end']"}[type_name]


def key(type_name, number):
    return literal(KEYS[type_name](number), type_name)
