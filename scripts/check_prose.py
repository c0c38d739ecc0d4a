"""Check the prose of code and documentation against the rules of ``docs/glossary.md``.

Prints ``path:line: message`` for each finding, then a summary, and exits with 1 if there are findings. Arguments
restrict the check to files or directories: ``python scripts/check_prose.py docs/how-to``. ``--exempt`` also checks
the paths of ``EXEMPT``.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

SUMMARY_WORDS = 12
SENTENCE_WORDS = 35
LONG_SENTENCE_WORDS = 25
LONG_SENTENCES_PERCENT = 5
FRAGMENT_WORDS = 40

# Pattern and replacement. A space matches any white space; matching ignores case.
WORDS = {
    r"told|tells?|telling": "report, inform, pass",
    r"whoever|somebody|nobody": "name the component or the user",
    r"anew": "again, recreate",
    r"beside": "next to, besides, compared with",
    r"for good": "permanently",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"heed(?:s|ed|ing)?": "honor, observe",
    r"dear(?:er|est)?": "expensive",
    r"(?<!there\s)(?:is|was) no (?!longer\b|more\b|less\b|later\b)": "is not a",
    r"unless (?:told|given|said)": "Defaults to",
    r"(?:go|goes|went|gone|going) on": "continue",
    r"news": "watch event, change",
    r"(?:give|gives|gave|given) back": "return, revert",
    r"of which": "two sentences",
    r"former": "previous",
    r"answer(?:s|ed|ing)?(?! file)": "response, respond",
    r"ask(?:s|ed|ing)? (?:the |its |an? )?(?:API|servers?|clusters?|kubelet|Kubernetes|database)": "request, query",
    r"(?:servers?|clusters?|API|kubelet|Kubernetes|database|cache) (?:is|are|was|were) asked": "request, query",
    r"(?:is|are|was|were) away": "unreachable",
    r"look(?:s|ed|ing)? after": "manage, maintain",
    r"(?:each|every|next|last) look": "inspection, resync",
    r"(?:heirs?|namesakes?|strangers?)": "new owner, name conflict, foreign object",
    r"bury|buries|buried": "tombstone",
    r"patience": "timeout, back-off",
    r"wish(?:es|ed)?": "desired state",
    r"speaks?": "use, support",
    r"hears? of|heard of": "receive, observe",
    r"lest": "so that … not",
}
# A sentence whose subject is a clause. Headings and questions are not meant.
CLAUSE = re.compile(r"(?:What|Whatever|Who|Whose)\s[^?]*[.:][\"')]*$")
FIRST_WORDS = {"What", "Whatever", "Who", "Whose", "Whether", "How", "Those", "As", "Where", "Why"}
MESSAGE_ARGUMENTS = {"help", "short_help", "epilog", "message", "note", "description"}
MESSAGE_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "echo", "step"}

# Regular expressions for whole paths, and the reason.
EXEMPT = {
    r"operators/databases/src/.*/sizing(?:/.*|\.py)": "in work",
    r"operators/databases/tests/.*|tests/.*/databases/.*": "tests of the database operator are rewritten last",
    r"docs/reference/fields/.*": "generated from types of the database operator",
    r".*/api/.*_v\d\w*\.py|.*/steersman/api/apply/[a-z]+\.py": "generated from the OpenAPI document of Kubernetes",
    r"examples/myapp/src/my_operator/foreign/.*": "generated from the CRDs of the database operator",
    r"CODE_OF_CONDUCT\.md": "the text of the Contributor Covenant",
}
AREA_DEPTH = {"packages": 3, "operators": 3, "src": 2, "tests": 2, "examples": 2}

Kind = Literal["docstring", "comment", "message", "document", "fragment"]
Lines = Iterable[tuple[int, str]]

_DIRECTIVE = re.compile(r"#(?:!|\s*(?:noqa|type:|pyright:|fmt:|ruff:|pragma:))")
_MARKUP = (
    (re.compile(r"(?m)^\[[^\]]+\]:\s+\S+$"), ""),
    (re.compile(r"(`+)(?:.|\n)+?\1"), "X"),
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"https?://[^\s)>]+|\{\{.*?\}\}"), "X"),
    (re.compile(r"<[^>\n]+>|\{%.*?%\}|[*_]{2}"), ""),
)
_ITEM = re.compile(r"(?:[-*+]|\d+\.)\s+|#{1,6}\s+|>\s+|(?:!!!|\?\?\?\+?)\s+\w+")
_SECTIONS = {"Args:", "Raises:", "Returns:", "Yields:", "Attributes:", "Example:", "Examples:", "Note:"}
_ARGUMENT = re.compile(r"[*\w.]+(?:, [*\w.]+)*(?: \([^)]*\))?:\s+")
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!vs)(?<!etc)[.!?][\"')\]”]*(?=\s+[\"'(\[“]?[A-Z0-9])")
_WORDS = {
    re.compile(rf"\b(?:{word})\b".replace(" ", r"\s+"), re.IGNORECASE): instead for word, instead in WORDS.items()
}


@dataclass(frozen=True)
class Prose:
    """A text with the line numbers that its lines come from."""

    kind: Kind
    lines: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Sentence:
    """A sentence without its markup; code is the word ``X``."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """Count the words: whatever has a letter or a digit between spaces."""
        return sum(any(c.isalnum() for c in word) for word in self.text.split())


def prose(path: PurePosixPath, text: str) -> Iterator[Prose]:
    """Yield the prose of a file, in no particular order."""
    if path.suffix == ".py":
        yield from _python(text)
    elif path.suffix == ".jinja" and path.suffixes[-2:] != [".md", ".jinja"]:
        yield from _template(text, python=path.suffixes[-2:] == [".py", ".jinja"])
    else:
        kind = "fragment" if path.parts[0] == "changelog.d" and path.name != "README.md" else "document"
        yield Prose(kind, tuple(enumerate(text.splitlines(), start=1)))


def _python(text: str) -> Iterator[Prose]:
    for node in ast.walk(ast.parse(text)):
        for child in ast.iter_child_nodes(node):
            match child:  # a docstring of a module, a class, a function or an attribute
                case ast.Expr(value=ast.Constant(value=str(docstring))):
                    yield Prose("docstring", _dedented(child.lineno, docstring))
                case ast.Call() | ast.Raise():
                    yield from _messages(child)
                case _:
                    pass
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = ((t.start, t.string) for t in tokens if t.type == tokenize.COMMENT)
    yield from _comments(c for c in comments if not _DIRECTIVE.match(c[1]))


def _messages(node: ast.Call | ast.Raise) -> Iterator[Prose]:
    texts: list[ast.expr] = []
    match node:
        case ast.Raise(exc=ast.Call(args=args)):
            texts += args
        case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name in MESSAGE_METHODS:
            texts.append(first)
        case _:
            pass
    if isinstance(node, ast.Call):
        texts += [k.value for k in node.keywords if k.arg in MESSAGE_ARGUMENTS]
    for value in texts:
        for line, text in _literals(value):
            if " " in text.strip():
                yield Prose("message", tuple((line, part) for part in text.splitlines()))


def _literals(value: ast.expr) -> Iterator[tuple[int, str]]:
    match value:
        case ast.Constant(value=str(text)):
            yield value.lineno, text
        case ast.JoinedStr(values=parts):
            yield value.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "`x`" for p in parts)
        case ast.BinOp(left=left, right=right):
            yield from _literals(left)
            yield from _literals(right)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _literals(body)
            yield from _literals(orelse)
        case _:
            pass


def _template(text: str, *, python: bool) -> Iterator[Prose]:
    lines = list(enumerate(text.splitlines(), start=1))
    found = ((n, re.search(r"(?<![^\s])#(?![{}]).*", line)) for n, line in lines)
    comments = (((n, f.start()), f.group()) for n, f in found if f and not _DIRECTIVE.match(f.group()))
    yield from _comments(comments)
    for docstring in re.finditer(r'^[ \t]*"""((?:.|\n)*?)"""', text, re.MULTILINE) if python else ():
        yield Prose("docstring", _dedented(text.count("\n", 0, docstring.start(1)) + 1, docstring.group(1)))


def _comments(comments: Iterable[tuple[tuple[int, int], str]]) -> Iterator[Prose]:
    """Join comments that stand below each other."""
    block: list[tuple[int, str]] = []
    end = (0, 0)
    for (line, column), text in comments:
        if block and (line, column) != end:
            yield Prose("comment", tuple(block))
            block = []
        block.append((line, text.lstrip("#")))
        end = (line + 1, column)
    if block:
        yield Prose("comment", tuple(block))


def _dedented(start: int, text: str) -> tuple[tuple[int, str], ...]:
    first, *rest = text.split("\n")
    indents = [len(line) - len(line.lstrip()) for line in rest if line.strip()]
    indent = min(indents, default=0)
    return ((start, first.strip()), *((start + n, line[indent:]) for n, line in enumerate(rest, start=1)))


def sentences(lines: Lines) -> Iterator[Sentence]:
    """Split a text into sentences. Code blocks are left out."""
    for block in _blocks(lines):
        text = "\n".join(line for _, line in block)
        for pattern, instead in _MARKUP:
            text = pattern.sub(lambda found, instead=instead: _same_lines(found, instead), text)
        start = 0
        for end in (*(found.end() for found in _SENTENCE_END.finditer(text)), len(text)):
            sentence = text[start:end]
            if any(c.isalnum() for c in sentence):
                first = text.count("\n", 0, start + len(sentence) - len(sentence.lstrip()))
                yield Sentence(block[first][0], sentence.strip())
            start = end


def _same_lines(found: re.Match[str], instead: str) -> str:
    new = found.expand(instead)
    return new + "\n" * (found.group().count("\n") - new.count("\n"))


def _blocks(lines: Lines) -> Iterator[list[tuple[int, str]]]:
    """Yield paragraphs, list items, headings and cells of tables."""
    block: list[tuple[int, str]] = []
    section = False
    for number, line in _without_code(lines):
        text = line.strip()
        section = section or text in _SECTIONS
        item = _ITEM.match(text) or (_ARGUMENT.match(text) if section else None)
        if block and (item or not text or text.startswith("|")):
            yield block
            block = []
        if text.startswith("|"):
            yield from ([(number, cell)] for cell in re.split(r"(?<!\\)\|", text) if cell.strip())
        elif text.startswith("#") and item:
            yield [(number, text[item.end() :])]
        elif text and text not in _SECTIONS:
            block.append((number, text[item.end() :] if item else text))
    if block:
        yield block


def _without_code(lines: Lines) -> Iterator[tuple[int, str]]:
    """Replace fenced code, doctests and literal blocks by empty lines."""
    fence, literal = "", -1
    for number, line in lines:
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if text[:3] in ("```", "~~~") and fence in ("", text[:3]):
            fence = "" if fence else text[:3]
        elif fence or (text and 0 <= literal < indent) or text.startswith((">>>", ":::", "<!--")):
            pass
        else:
            if text:
                literal = indent if text.endswith("::") or text in ("Example:", "Examples:") else -1
            yield number, line
            continue
        yield number, ""


def findings(found: Prose) -> Iterator[tuple[int, str]]:
    """Yield the findings of a text, except the share of long sentences."""
    all_sentences = list(sentences(found.lines))
    if found.kind == "docstring" and all_sentences:
        summary = all_sentences[0]
        first = re.match(r"\w+", summary.text)
        if first and first.group() in FIRST_WORDS:
            yield summary.line, f"docstring starts with {first.group()}: use an imperative or a noun phrase"
        if summary.words > SUMMARY_WORDS:
            yield summary.line, f"summary has {summary.words} words, at most {SUMMARY_WORDS} are allowed"
    if found.kind == "fragment" and (words := sum(s.words for s in all_sentences)) > FRAGMENT_WORDS:
        yield found.lines[0][0], f"fragment has {words} words, at most {FRAGMENT_WORDS} are allowed"
    for sentence in all_sentences:
        if sentence.words > SENTENCE_WORDS:
            yield sentence.line, f"sentence has {sentence.words} words, at most {SENTENCE_WORDS} are allowed"
        if clause := CLAUSE.match(sentence.text):
            yield sentence.line, f"{' '.join(clause.group().split()[:2])} …: begin the sentence with a noun"
        for pattern, instead in _WORDS.items():
            for word in pattern.finditer(sentence.text):
                line = sentence.line + sentence.text.count("\n", 0, word.start())
                yield line, f"{' '.join(word.group().split())}: write {instead}"


def checked(root: Path, arguments: list[str]) -> Iterator[PurePosixPath]:
    """Yield the chosen files that Git does not ignore."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    exempt = {} if "--exempt" in arguments else EXEMPT
    below = [Path(argument).resolve() for argument in arguments if not argument.startswith("--")]
    for name in sorted(filter(None, listed.split("\0"))):
        is_prose = name.endswith((".py", ".md", ".jinja")) and (root / name).is_file()
        is_chosen = not below or any((root / name).resolve().is_relative_to(path) for path in below)
        if is_prose and is_chosen and not any(re.fullmatch(pattern, name) for pattern in exempt):
            yield PurePosixPath(name)


def area(path: PurePosixPath) -> str:
    """Return the directory that a file's long sentences are counted for."""
    return "/".join(path.parent.parts[: AREA_DEPTH.get(path.parts[0], 1)]) or "."


def main() -> None:
    """Check the repository of the current directory."""
    top = subprocess.run(["git", "rev-parse", "--show-toplevel"], check=True, capture_output=True, text=True)
    root = Path(top.stdout.strip())
    counted, found, long = Counter[str](), Counter[str](), defaultdict[str, list[str]](list)
    for path in checked(root, sys.argv[1:]):
        where = area(path)
        proses = list(prose(path, (root / path).read_text(encoding="utf-8")))
        for line, message in sorted(finding for one in proses for finding in findings(one)):
            sys.stdout.write(f"{path}:{line}: {message}\n")
            found[where] += 1
        for sentence in (sentence for one in proses for sentence in sentences(one.lines)):
            counted[where] += 1
            if sentence.words > LONG_SENTENCE_WORDS:
                long[where].append(f"{path}:{sentence.line}: sentence has {sentence.words} words")
    for where, number in sorted(counted.items()):
        percent = 100 * len(long[where]) / number
        result = f"{percent:.1f} % of {number} sentences have more than {LONG_SENTENCE_WORDS} words"
        if percent > LONG_SENTENCES_PERCENT and len(long[where]) > 1:
            sys.stdout.writelines(
                f"{place}, too many of {where} have more than {LONG_SENTENCE_WORDS}\n" for place in long[where]
            )
            found[where] += 1
            result += f", at most {LONG_SENTENCES_PERCENT} % are allowed"
        sys.stdout.write(f"{where}: {found[where]} findings; {result}\n")
    sys.stdout.write(f"{found.total()} findings\n")
    sys.exit(1 if found.total() else 0)


if __name__ == "__main__":
    main()
