"""Print the input of Golden.java: names in DER, and mapping rules with names to map (README.md)."""

import base64
import random

PRINTABLE, UTF_8, T61, IA5, BMP, UNIVERSAL, GENERAL, NUMERIC, INTEGER = (
    0x13, 0x0C, 0x14, 0x16, 0x1E, 0x1C, 0x1B, 0x12, 0x02,
)  # fmt: skip
TYPES = [
    "2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11", "0.9.2342.19200300.100.1.1",
    "0.9.2342.19200300.100.1.25", "1.2.840.113549.1.9.1", "2.5.4.5", "2.5.4.4", "2.5.4.42", "2.5.4.12", "2.5.4.46",
    "1.3.6.1.4.1.311.60.2.1.3", "2.999.1", "1.39.5",
]  # fmt: skip
TEXTS = [
    "kafka", "Acme, Inc.", "a=b", "a+b", "<x>", "#1", "a;b", 'say "hi"', "back\\slash", " lead", "trail ", "  ", " ",
    "", "\r", "\rcr\r", "a\nb", "\n", "tab\t", "Zürich", "東京", "😀", "\0", "a\0b", "\x7f", "a/b", "O'Neil", "a  b",
    "_*&@!", "\u00a0nbsp\u00a0", "\u2028", "*.example.com", ",", "\\", "+ ", " #", "x" * 200,
]  # fmt: skip


def der(tag: int, content: bytes) -> bytes:
    if len(content) < 128:
        return bytes((tag, len(content))) + content
    size = (len(content).bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + len(content).to_bytes(size, "big") + content


def oid(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    content = b""
    for arc in (first * 40 + second, *rest):
        part = [arc & 0x7F]
        while arc := arc >> 7:
            part.insert(0, arc & 0x7F | 0x80)
        content += bytes(part)
    return der(6, content)


def pair(kind: str, tag: int, content: bytes) -> bytes:
    return der(0x30, oid(kind) + der(tag, content))


def names(random: random.Random) -> list[bytes]:
    found = [b"\x30\0"]
    for kind in TYPES:
        for tag in (PRINTABLE, UTF_8, IA5, INTEGER):
            found.append(der(0x30, der(0x31, pair(kind, tag, b"kafka"))))
    for text in TEXTS:
        for tag in (UTF_8, PRINTABLE, T61, IA5, GENERAL):
            found.append(der(0x30, der(0x31, pair("2.5.4.3", tag, text.encode()))))
        for tag, encoding in ((BMP, "utf-16-be"), (UNIVERSAL, "utf-32-be"), (T61, "latin-1")):
            found.append(der(0x30, der(0x31, pair("2.5.4.10", tag, text.encode(encoding, "replace")))))
    for broken in (b"\xff", b"a\xc3", b"\xe6\x9d", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\x80x", b"\xf5\x80\x80\x80"):
        found.append(der(0x30, der(0x31, pair("2.5.4.3", UTF_8, broken))))
    for _ in range(300):
        sets = [
            der(
                0x31,
                b"".join(
                    pair(
                        random.choice(TYPES),
                        random.choice((UTF_8, UTF_8, PRINTABLE, IA5, T61, NUMERIC)),
                        random.choice(TEXTS).encode(),
                    )
                    for _ in range(random.choice((1, 1, 1, 2, 3)))
                ),
            )
            for _ in range(random.randint(1, 5))
        ]
        found.append(der(0x30, b"".join(sets)))
    return found


NAMES = [
    "CN=kafka1,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "CN=duke,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
    "CN=duke,OU=JavaSoft,O=Sun Microsystems",
    "CN=Zürich,O=ÅÄÖ ß ŒŁ",
    "CN=Σίσυφος ΣΑΣ,O=İstanbul ŉ ǅ",
    "1.2.840.113549.1.9.1=#1613616c696365,CN=alice",
    "CN=a\\,b\\+c,O=x",
    "CN=a\nb,O=c\r",
    "CN=a\u2028b",
    "CN=\u0085",
    "CN=😀 smile",
    "",
    "aaab",
    "CN=x\n",
    "CN=x\r\n",
]
RULES = [
    "DEFAULT",
    "",
    " ",
    "default",
    "DEFAULT, DEFAULT",
    ",DEFAULT",
    ",,DEFAULT,",
    "  DEFAULT  ",
    "DEFAULTS",
    "RULE:",
    "RULE:^CN=(.*?)$",
    "RULE:^CN=(.*?)$/$1",
    "RULE:^CN=(.*?)$/$1/Lx",
    "RULE:^CN=(.*?)$/$1/U/L",
    "RULE:^CN=(.*?)$/$1/LU",
    "RULE:^CN=(.*?)$/L",
    "RULE:^CN=(.*?),ST=(.*?)$/$1@$2",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/U",
    "RULE:^CN=(.*?)(?:,.*)?$/$1/L",
    "RULE:^CN=(.*?)(?:,.*)?$/$1/U",
    "RULE:(.*)/$1/",
    "RULE:(.*)/[$1]/",
    "RULE:.*/x/",
    "RULE:.+/x/",
    "RULE:(a*)(b?)/<$1|$2>/",
    "RULE:(|a)*(|b)/<$1|$2>/",
    "RULE:(?:|a|b)+/-/",
    "RULE:[^,]*(,[^,]*)*/z/",
    "RULE:()/x/",
    "RULE:^$/empty/",
    "RULE:CN=(.*)/$0/",
    "RULE:CN=(.*)/$2/",
    "RULE:CN=(.*)/$1$2/",
    "RULE:CN=(.*)/$2$3/",
    "RULE:CN=(.*)/$2@$1/",
    "RULE:CN=(.*)/$12/",
    "RULE:CN=(.*)/$012/",
    "RULE:CN=(.*)/$99/",
    "RULE:CN=(.*)/$1 and $9 and $1/",
    "RULE:CN=.*/$1/",
    "RULE:CN=.*/$/",
    "RULE:CN=(.*)/$/",
    "RULE:CN=(.*)/$x/",
    "RULE:CN=(.*)/\\$1/",
    "RULE:CN=(.*)/a\\/b/",
    "RULE:CN=(.*)/a\\\\b/",
    "RULE:CN=(?<who>.*)/${who}/",
    "RULE:CN=(?<who>.*)/${what}/",
    "RULE:CN=(?<who>[^,]*),.*/${who}$1/",
    "RULE:CN=(.*?)\\,.*/$1/",
    "RULE:CN=([^\\/]*)/$1/",
    "RULE:CN=([^/]*)/$1/",
    "RULE:CN=([^,]+),OU=([^,]+).*/$2.$1/L , DEFAULT",
    "RULE:CN=(\\w+).*/$1/",
    "RULE:CN=(\\W+).*/$1/",
    "RULE:CN=(\\S+)\\s(.*)/$2 $1/",
    "RULE:CN=(.*)\\z/$1/",
    "RULE:CN=(.*)\\Z/$1/",
    "RULE:CN=([^\\n]*)$/$1/",
    "RULE:CN=(.*)$\\n/$1/",
    "RULE:CN=(.*)$\\r\\n/$1/",
    "RULE:CN=(.*)\\r$\\n/$1/",
    "RULE:CN=([\\s\\S]*)/$1/",
    "RULE:\\ACN=(\\p{L}+).*/$1/",
    "RULE:CN=\\Qa\\E.*/x/",
    "RULE:CN=(.*+)/$1/",
    "RULE:CN=(?>.*)/x/",
    "RULE:CN=(?i)KAFKA1.*/x/",
    "RULE:CN=[a-z&&[^k]]+.*/x/",
    "RULE:CN=(.)\\1*.*/$1/",
    "RULE:CN=(a{2}|k{1,}).*/$1/",
    "RULE:CN=(a{,2}).*/$1/",
    "RULE:CN=(?=k)(.*?)(?<=1),.*/$1/",
    "RULE:CN=((?!duke)[^,]*).*/$1/",
    "RULE:(?:.*,)?CN=([^,]*)(?:,.*)?/$1/",
    "RULE:(([A-Z]+)=([^,]*),?)+/$1|$2|$3/",
    "RULE:(?:([A-Z]+)=([^,]*)(?:,|$))+/$2/",
    "RULE:[/x/",
    "RULE:(/x/",
    "RULE:*/x/",
    "RULE:a**/x/",
    "RULE:a{/x/",
    "RULE:\\/x/",
    "RULE:x\\y/",
    "CN=(.*)/$1/",
    "RULE:a/b/,RULE:CN=(.*)/$1/ RULE:x/y/",
    "RULE:a/b/ junk,DEFAULT",
    "rule:a/b/",
]
PIECES = [
    "CN=", "O=", ",", ".*", ".*?", "(.*)", "(.*?)", "([^,]*)", "[^,]+", "(a|b)*", "(a*)*", "(|a)", "(a)?", "\\w+",
    "(\\w*)", "\\s", "x?", "^", "$", "(?:a|ab)", "(b|)+", "(.)", "\\1", "(?=a)", "[a-c]{1,2}", "\\d*", "=", "(?:,|$)",
    ".", "\\b", "[\\w=]+", "(?:(a)|(b))*", "a*?", "(a*?)", "\\.",
]  # fmt: skip
REPLACEMENTS = ["$1", "$1@$2", "x", "", "$0", "<$1>", "$1$1", "[$2]", "\\$", "$3", "$10"]
SUBJECTS = ["CN=ab,O=ba", "aab", "CN=a", "", "CN=b,O=", "ab,,a", "CN=1 a.b"]


def rules(random: random.Random) -> list[tuple[str, str]]:
    found = [(rule, name) for rule in RULES for name in NAMES]
    for _ in range(1000):
        pattern = "".join(random.choice(PIECES) for _ in range(random.randint(1, 6)))
        rule = f"RULE:{pattern}/{random.choice(REPLACEMENTS)}/{random.choice(('', '', 'L', 'U'))}"
        found += [(rule, name) for name in random.sample(SUBJECTS, 2)]
    return found


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "-"


if __name__ == "__main__":
    fixed = random.Random(253)
    for name in names(fixed):
        print("name", name.hex())
    for rule, name in rules(fixed):
        print("rule", encoded(rule), encoded(name))
