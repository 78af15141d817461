"""
Words as a document: where lines may end in statements, clauses, lists, conditions and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from sqlglot.tokenizer_core import TokenType

from query.formatting.lines import FRESH, HARD, SOFT, SPACE, Concat, Doc, Suffix, concat, group, indented, joined
from query.formatting.words import Word

_CLAUSES = frozenset({"SELECT", "INTO", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "UNION", "WITH"})
_LISTS = frozenset({"SELECT", "GROUP BY", "ORDER BY"})
_CONDITIONS = frozenset({"WHERE", "HAVING", "ON"})
_JOINS = frozenset({"JOIN", "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "APPLY", "CROSS APPLY", "OUTER APPLY"})
_OF_INPUTS = frozenset({"TIMESTAMP", "PARTITION BY", "ON", "UNION"})
_OF_OVER = frozenset({"PARTITION BY", "ORDER BY", "LIMIT", "WHEN"})
_OF_MATCH = _OF_OVER | {"MEASURES", "AFTER", "PATTERN", "DEFINE", "ONE"}
_LISTS_OF_MATCH = ("MEASURES", "DEFINE")
# Operators by how loosely they bind; comparisons never end a line.
_LEVELS = {"OR": 1, "AND": 2, **dict.fromkeys("+-&|^", 3), **dict.fromkeys("*/%", 4)}
_NO_SPACE_BEFORE = (TokenType.COMMA, TokenType.R_PAREN, TokenType.SEMICOLON)


class ScriptLayout:
    """The document of a script's words; *starts* are the places at which its statements begin."""

    def __init__(self, words: Sequence[Word], starts: Collection[int], has_capitals: bool) -> None:
        self._words, self._starts, self._has_capitals = words, starts, has_capitals
        self._ends = dict(self._pairs())

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the places of each opening word and of the one that closes it."""
        opened: list[int] = []
        for place, word in enumerate(self._words):
            if word.kind is TokenType.L_PAREN or word.keyword == "CASE":
                opened.append(place)
            elif opened and (word.kind is TokenType.R_PAREN or word.keyword == "END"):
                yield opened.pop(), place

    def script(self) -> Concat:
        """Return the document of all statements."""
        firsts = [place for place, word in enumerate(self._words) if word.start in self._starts or not place or not word.text]
        docs: list[Doc] = []
        for first, end in zip(firsts, [*firsts[1:], len(self._words)], strict=True):
            is_end = not self._words[first].text
            if docs:
                docs += [FRESH] if is_end else [HARD, HARD]
            docs += self._blank_lines(first, bool(docs) and is_end)
            docs.append(self._statement(first, end))
        return concat(*docs)

    def _blank_lines(self, first: int, is_end: bool) -> list[Doc]:
        """Return the comments before a statement, with the empty lines among them."""
        word, docs = self._words[first], list[Doc]()
        for number, comment in enumerate(word.before):
            docs += [HARD] if comment.has_blank and (number or is_end) else []
            docs += [comment.text, HARD if comment.ends_line else " "]
        return [*docs, HARD] if word.before and word.has_blank and word.text else docs

    def _statement(self, first: int, end: int) -> Concat:
        last = end
        while last > first and self._words[last - 1].kind is TokenType.SEMICOLON:
            last -= 1
        is_query = last > first and self._words[first].keyword in ("SELECT", "WITH", "FROM")
        body = self._query(first, last) if is_query else self._flow(first, last)
        return concat(body, *(self._word(place) for place in range(last, end)))

    def _items(self, start: int, end: int) -> Iterator[int]:
        """Yield the places of words outside of inner brackets."""
        place = start
        while place < end:
            yield place
            place = self._ends.get(place, place) + 1

    def _split(self, start: int, end: int, is_start: Callable[[int], bool]) -> list[tuple[int, int]]:
        """Return the parts that begin at *start* and wherever *is_start* holds outside of brackets."""
        places = [start, *(place for place in self._items(start, end) if place > start and is_start(place))]
        return list(zip(places, [*places[1:], end], strict=True))

    def _query(self, start: int, end: int) -> Concat:
        return joined([HARD], [self._clause(*clause) for clause in self._split(start, end, self._starts_clause)])

    def _starts_clause(self, place: int) -> bool:
        word, before, after = self._words[place].keyword, self._words[place - 1], self._words[place + 1]
        if word == "INTO" and after.kind is TokenType.NUMBER:
            return False
        if word == "UNION":
            return after.keyword in ("SELECT", "ALL", "WITH") or after.kind is TokenType.L_PAREN
        return word in _CLAUSES or (word in _JOINS and before.keyword not in _JOINS)

    def _clause(self, start: int, end: int) -> Concat:
        word = self._words[start].keyword
        if word in _LISTS:
            first = start + 1
            while first < end and (self._words[first].keyword in ("DISTINCT", "TOP", "ALL") or self._words[first - 1].keyword == "TOP"):
                first = self._ends.get(first, first) + 1
            return group(self._flow(start, first), indented(SPACE, self._list(first, end)))
        if word in _CONDITIONS:
            return group(self._word(start), " ", self._expression(start + 1, end))
        if word == "WITH":
            return concat(self._word(start), " ", self._list(start + 1, end, HARD))
        if word == "FROM" or word in _JOINS:
            inputs = self._split(start, end, lambda place: self._words[place].keyword in _OF_INPUTS)
            rest = [self._clause(*each) if self._words[each[0]].keyword == "ON" else self._expression(*each) for each in inputs[1:]]
            return group(self._flow(*inputs[0]), indented(*(doc for each in rest for doc in (SPACE, each))))
        return self._flow(start, end)

    def _list(self, start: int, end: int, separator: Doc = SPACE) -> Concat:
        """Return the items of a list, each with the comma behind it."""
        items = self._split(start, end, lambda place: self._words[place - 1].kind is TokenType.COMMA)
        docs = []
        for first, last in items:
            has_comma = last > first and self._words[last - 1].kind is TokenType.COMMA
            docs.append(concat(self._expression(first, last - has_comma), self._word(last - 1) if has_comma else ""))
        return joined([separator], docs)

    def _expression(self, start: int, end: int) -> Concat:
        operators = {place: level for place, level in self._operators(start, end) if level}
        if not operators:
            return self._flow(start, end)
        loosest = min(operators.values())
        parts = self._split(start, end, lambda place: operators.get(place) == loosest)
        first, *others = parts
        docs: list[Doc] = [self._expression(*first)]
        for place, last in others:
            docs += [SPACE, concat(self._word(place), " ", self._expression(place + 1, last))]
        return group(docs[0], indented(*docs[1:]))

    def _operators(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        betweens = 0
        for place in self._items(start, end):
            word = self._words[place]
            betweens += word.keyword == "BETWEEN"
            if word.keyword == "AND" and betweens:
                betweens -= 1
            elif place > start and place + 1 < end and (word.keyword or self._is_operand(place - 1)):
                yield place, _LEVELS.get(word.keyword or word.text, 0)

    def _flow(self, start: int, end: int) -> Concat:
        docs: list[Doc] = []
        for place in self._items(start, end):
            docs += [" "] if place > start and self._has_space(place) else []
            docs.append(self._brackets(place, self._ends[place]) if place in self._ends else self._word(place))
        return concat(*docs)

    def _brackets(self, start: int, end: int) -> Concat:
        first = self._words[start + 1]
        if self._words[start].keyword == "CASE":
            branches = self._split(start, end, lambda place: self._words[place].keyword in ("WHEN", "ELSE"))
            docs: list[Doc] = [doc for branch in branches[1:] for doc in (SPACE, self._flow(*branch))]
            head = branches[0][1]
            value: list[Doc] = [" ", self._expression(start + 1, head)] if head > start + 1 else []
            return group(self._word(start), *value, indented(*docs), SPACE, self._word(end))
        if first.keyword in ("SELECT", "WITH"):
            return concat(self._word(start), indented(HARD, self._query(start + 1, end)), HARD, self._word(end))
        if start + 1 == end:
            return concat(self._word(start), self._word(end))
        before = self._words[start - 1].text.upper() if start else ""
        if before == "MATCH_RECOGNIZE":
            return concat(self._word(start), indented(HARD, self._match(start + 1, end)), HARD, self._word(end))
        if before == "PATTERN":
            return self._pattern(start, end)
        clauses = self._split(start + 1, end, lambda place: self._words[place].keyword in _OF_OVER)
        if first.keyword in _OF_OVER or len(clauses) > 1:
            inside: Concat = joined([SPACE], [self._flow(*clause) for clause in clauses])
        else:
            inside = self._list(start + 1, end)
        return group(self._word(start), indented(SOFT, inside), SOFT, self._word(end))

    def _match(self, start: int, end: int) -> Concat:
        """Return the clauses of MATCH_RECOGNIZE, each on a line of its own."""

        def is_start(place: int) -> bool:
            return self._clause_of_match(place) in _OF_MATCH and self._words[place - 1].kind not in (TokenType.COMMA, TokenType.ALIAS)

        docs = []
        for first, last in self._split(start, end, is_start):
            is_list = self._clause_of_match(first) in _LISTS_OF_MATCH
            clause = group(self._word(first), indented(SPACE, self._list(first + 1, last))) if is_list else self._flow(first, last)
            docs.append(clause)
        return joined([HARD], docs)

    def _clause_of_match(self, place: int) -> str:
        return self._words[place].keyword or self._words[place].text.upper()

    def _pattern(self, start: int, end: int) -> Concat:
        """Return a pattern, each quantifier right behind what it repeats."""
        docs: list[Doc] = []
        depth = 0
        for place in range(start, end + 1):
            word, before = self._words[place], self._words[place - 1]
            is_apart = word.kind is TokenType.PIPE or (word.text[:1] not in (*"+*?{}),",) and before.kind is not TokenType.L_PAREN)
            docs += [" "] if place > start and is_apart and not depth else []
            depth += (word.text == "{") - (word.text == "}")
            docs.append(self._word(place))
        return concat(*docs)

    def _word(self, place: int) -> Concat:
        word = self._words[place]
        text = word.keyword if word.keyword and self._has_capitals else " ".join(word.text.split()) if word.keyword else word.text
        docs: list[Doc] = []
        # The comments before a statement are laid out with it.
        for comment in () if place == 0 or word.start in self._starts or not word.text else word.before:
            docs += [FRESH, comment.text, HARD] if comment.ends_line else [comment.text, " "]
        return concat(*docs, text, *(Suffix(f" {comment.text}") for comment in word.after))

    def _is_operand(self, place: int) -> bool:
        """Return whether a value ends at a word, so that a sign behind it has two sides."""
        word = self._words[place]
        if word.keyword:
            return word.keyword in ("NULL", "END")
        return word.kind is TokenType.R_PAREN or word.text[:1].isalnum() or word.text[:1] in tuple("_['\"")

    def _has_space(self, place: int) -> bool:
        before, word = self._words[place - 1], self._words[place]
        if before.kind in (TokenType.L_PAREN, TokenType.DOT) or word.kind in _NO_SPACE_BEFORE:
            return False
        if word.kind is TokenType.DOT:
            return not self._is_operand(place - 1)
        if before.text in ("-", "+", "~") and (place < 2 or not self._is_operand(place - 2)):
            return word.text == before.text
        if word.kind is TokenType.L_PAREN:
            is_declared = place > 1 and self._words[place - 2].keyword == "TABLE"
            return is_declared or bool(before.keyword) or not self._is_operand(place - 1)
        return True
