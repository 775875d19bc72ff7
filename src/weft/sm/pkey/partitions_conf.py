"""partitions.conf, read as OpenSM reads it (osm_prtn_config.c), not as its documentation describes it.

    [Name][=PKey][,flag[=value]]... : [port[=full|limited|both]],... mgid=GID[,flag=value]... ;

What the documentation does not say, and the code does:

- Words may be cut short: `limi`, `A` for ALL, `s` for scope. So `0x1234=` with nothing behind it is full.
- The definition up to its colon stands on one line; the ports may run over many. A word never does.
- A name that begins with a digit, without `=`, is the P_Key.
- A P_Key of 0, or none, is that of the partition of this name, or the lowest free one.
- The same P_Key again adds to that partition: the first name stays, the last SL counts.
- Default begins with ALL=limited, SELF=full; its rules in the file come on top of that.
- The broadcast group of `ipoib` is link-local, whatever `scope` says; groups of `mgid=` lines follow it.
- An SL counts where QoS is on. A rate or an MTU that is none leaves its groups out.
- A group of IP needs the broadcast group of its scope, before it in the file; link-local a01b MGIDs are the SA's own.
- One bad word and OpenSM drops the file, and makes everybody a full member of Default. That opens every partition, so
  weft raises FileError instead. A file without any definition is harmless: everybody is a full member of Default.
- `NAME : defmember=limited : PORTS`, which its manual page has, is such a bad word. Here it means what it should.

What OpenSM only logs, if at all, is a note here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from weft.errors import ConfigError, FileError
from weft.ids import Gid
from weft.sm.pkey.conf_groups import BLANKS, IP_SIGNATURES, Flags, abbreviated, refusal, split, strtoul
from weft.sm.pkey.partitions import (
    DEFAULT_P_KEY,
    IPOIB_Q_KEY,
    NO_FILE,
    Everyone,
    Group,
    Member,
    Membership,
    Partition,
    Partitions,
    broadcast_mgid,
    with_p_key,
)

_LONGEST_NAME = 31
_LONGEST_LINE = 4094  # OpenSM's buffer; it reads what is beyond as another line
# In the order in which OpenSM compares them; the first that the word begins is meant.
_WHO = ("ALL", "ALL_CAS", "ALL_SWITCHES", "ALL_ROUTERS", "SELF")
_MEMBERSHIPS = {"full": Membership.FULL, "both": Membership.BOTH, "limited": Membership.LIMITED}


def parse_partitions(text: str, path: Path | str = "partitions.conf", *, qos: bool = True) -> Partitions:
    """Read the partitions of a file's text; without `qos` its SLs have no effect."""
    return _Reader(path, qos=qos).read(text)


@dataclass(slots=True)
class _Draft:
    """A partition as it grows."""

    name: str
    p_key: int
    line: int
    members: list[Member] = field(default_factory=list)
    sl: int = 0
    groups: list[Group] = field(default_factory=list)
    said: dict[Everyone | int, Member] = field(default_factory=dict)  # member -> its last rule in the file

    @property
    def label(self) -> str:
        return f"{self.name}={self.p_key:#06x}"

    def finished(self) -> Partition:
        members, groups = tuple(self.members), tuple(self.groups)
        return Partition(name=self.name, p_key=self.p_key, members=members, sl=self.sl, groups=groups)


@dataclass(slots=True)
class _Definition:
    """The settings that hold from a definition's name to its semicolon."""

    partition: _Draft
    flags: Flags
    membership: Membership
    index0: bool


class _Reader:
    def __init__(self, path: Path | str, *, qos: bool) -> None:
        self.path, self.line, self.qos = path, 0, qos
        self.notes: list[str] = []
        self.rank = 0
        self.generated = 0
        self.groups: dict[Gid, Group] = {}
        implied = ((Everyone.ALL, Membership.LIMITED), (Everyone.SELF, Membership.FULL))
        default = _Draft(
            "Default",
            DEFAULT_P_KEY,
            0,
            [Member(who=selector, membership=membership) for selector, membership in implied],
        )
        self.drafts = {DEFAULT_P_KEY: default}
        self.open: _Definition | None = None

    def read(self, text: str) -> Partitions:
        any_statement = False
        for self.line, line in enumerate(text.split("\n"), 1):
            if len(line) > _LONGEST_LINE:
                self.note(f"longer than {_LONGEST_LINE} characters: OpenSM would cut it, perhaps within a GUID")
            any_statement |= self.statements(line)
        if not any_statement:
            note = f"{self.path}: no partition is defined: all ports are full members of Default"
            return Partitions(partitions=NO_FILE.partitions, notes=(note,))
        return self.finished()

    def finished(self) -> Partitions:
        if self.drafts[DEFAULT_P_KEY].line == 0:
            self.notes.append(
                f"{self.path}: there is no rule for Default={DEFAULT_P_KEY:#06x}: the subnet manager's port is a full "
                "member, all others are limited ones and cannot talk to each other in it"
            )
        for draft in self.drafts.values():
            if not draft.members:
                self.line = draft.line
                self.note(f"partition {draft.label} has no members and is left out")
        every = [draft.finished() for draft in self.drafts.values()]
        return Partitions(
            partitions=tuple(partition for partition in every if partition.members),
            notes=tuple(self.notes),
            empty=tuple(partition for partition in every if not partition.members),
        )

    def note(self, text: str) -> None:
        self.notes.append(f"{self.path}:{self.line}: {text}")

    def refuse(self, read: str, expected: str) -> FileError:
        return FileError(self.path, self.line, read, f"{expected} (OpenSM would drop the whole file)")

    # -- definitions ----------------------------------------------------------------------------------------------

    def statements(self, line: str) -> bool:
        """Read all statements of a line; return whether there were any."""
        first = rest = line.split("#", 1)[0].lstrip(BLANKS)
        while rest:
            statement, semicolon, rest = rest.partition(";")
            rest = rest.lstrip(BLANKS)
            self.statement(statement)
            if semicolon:
                self.open = None
        return bool(first)

    def statement(self, text: str) -> None:
        """Read a statement up to a semicolon, or to the end of the line."""
        if self.open is None:
            head, colon, text = text.partition(":")
            if not colon:
                raise self.refuse(head, "a partition, NAME=PKEY : PORTS ;, with its colon on the same line")
            self.open = self.definition(head)
            text = self.second_head(self.open, text)
        elif not text:  # OpenSM steps over the end of the line then, into what is left of the one before
            self.note("a line that begins with ';' is misread by OpenSM: put it at the end of the line before")
        words = text.split(",")
        for number, word in enumerate(words):
            name, value = split(word)
            if name == "mgid":
                self.group(self.open, value, words[number + 1 :])
                break
            self.port(self.open, name, value)

    def second_head(self, definition: _Definition, text: str) -> str:
        """Return the rest after `defmember=limited :`, which the manual page writes after the first colon."""
        head, colon, rest = text.partition(":")
        name, value = split(head)
        if not colon or name != "defmember":
            return text
        self.note("OpenSM drops the whole file over 'defmember' behind a colon: put it before, with a comma")
        definition.membership = self.default_membership(value, definition.membership)
        return rest

    def definition(self, head: str) -> _Definition:
        words = head.split(",")
        flags, membership, index0, ipoib = Flags(), Membership.LIMITED, False, False
        for word in words[1:]:
            name, value = split(word)
            if flags.take(name, value, self.note):
                continue
            if "ipoib".startswith(name):
                ipoib = True
            elif "defmember".startswith(name):
                membership = self.default_membership(value, membership)
            elif name == "indx0":
                index0 = True
            else:
                self.note(f"the flag {name!r} is not known and is ignored")
        partition = self.partition(*split(words[0]))
        if flags.sl and not self.qos:
            self.note(f"sl={flags.sl} of partition {partition.label} counts with QoS only, which is off")
            flags.sl = 0
        self.take_flags(partition, flags, ipoib)
        return _Definition(partition, flags, membership, index0)

    def take_flags(self, partition: _Draft, flags: Flags, ipoib: bool) -> None:
        if partition.line and partition.sl != flags.sl:
            self.note(f"partition {partition.label} has sl={partition.sl} before, now {flags.sl}: the last counts")
        partition.sl = flags.sl
        partition.line = partition.line or self.line
        if ipoib:
            if flags.scopes:
                self.note("the broadcast group is link-local: scope= counts for groups of mgid= only")
            of_broadcast = replace(flags, q_key=flags.q_key or IPOIB_Q_KEY, scopes=())
            self.add_groups(partition, of_broadcast, broadcast_mgid(partition.p_key))

    def default_membership(self, value: str | None, before: Membership) -> Membership:
        word = None if value is None else abbreviated(value, tuple(_MEMBERSHIPS))
        if word is None:
            self.note(f"defmember={value or ''} is not full, limited or both: ignored")
            return before
        return _MEMBERSHIPS[word]

    def partition(self, name: str, p_key_text: str | None) -> _Draft:
        """Return the partition of a definition: a new one, or an existing one."""
        if p_key_text is None and name[:1].isascii() and name[:1].isdigit():
            name, p_key_text = "", name
        p_key = 0
        if p_key_text is not None:
            number, left = strtoul(p_key_text)
            if left or not p_key_text:
                raise self.refuse(p_key_text, "a P_Key: 0x and hexadecimal digits, or a decimal number")
            p_key = number & 0x7FFF
            if number != p_key:
                self.note(f"only the low 15 bits of the P_Key {p_key_text} count: {p_key:#06x}")
        if p_key == 0:
            existing = self.named(name)
            if existing is not None:
                return existing
            p_key = self.free_p_key()
            if p_key_text is not None:
                self.note(f"P_Key 0 is none: partition {name!r} gets {p_key:#06x}")
        return self.with_key(name, p_key)

    def with_key(self, name: str, p_key: int) -> _Draft:
        draft = self.drafts.get(p_key)
        if draft is None:
            draft = self.drafts[p_key] = _Draft(name[:_LONGEST_NAME] or f"{p_key:04x}", p_key, 0)
        elif name and name[:_LONGEST_NAME] != draft.name:
            self.note(f"P_Key {p_key:#06x} is that of partition {draft.name!r}: {name!r} is merged into it")
        return draft

    def named(self, name: str) -> _Draft | None:
        """Return the partition of a name; of several, OpenSM takes the first by P_Key, low byte first."""
        drafts = [draft for draft in self.drafts.values() if draft.name == name]
        return min(drafts, key=lambda draft: draft.p_key.to_bytes(2, "little")) if drafts else None

    def free_p_key(self) -> int:
        while self.generated < DEFAULT_P_KEY - 1:
            self.generated += 1
            if self.generated not in self.drafts:
                return self.generated
        raise FileError(self.path, self.line, f"no P_Key is free for this partition: all {DEFAULT_P_KEY - 1} are taken")

    # -- members --------------------------------------------------------------------------------------------------

    def port(self, definition: _Definition, name: str, value: str | None) -> None:
        if "NONE".startswith(name):  # nothing between two commas, too
            return
        word = None if name[0] == "0" else abbreviated(name, _WHO)  # GUIDs are many
        selector: Everyone | int = 0
        if word is not None:
            selector = Everyone(word)
        else:
            selector, left = strtoul(name)
            if left or not selector:
                raise self.refuse(name, "a port GUID like 0x0002c90300001231, ALL, ALL_CAS, ALL_SWITCHES, SELF or NONE")
        membership = definition.membership if value is None else self.membership(name, value)
        self.rank += 1
        member = Member(who=selector, membership=membership, index0=definition.index0, rank=self.rank, line=self.line)
        self.contradictions(definition.partition, member)
        definition.partition.members.append(member)
        definition.partition.said[selector] = member

    def membership(self, name: str, value: str) -> Membership:
        word = abbreviated(value, tuple(_MEMBERSHIPS))
        if word is None:
            self.note(f"{name}={value} is not full, limited or both: taken as limited")
            return Membership.LIMITED
        if not value:
            self.note(f"{name}= has no value: taken as full, as in OpenSM")
        return _MEMBERSHIPS[word]

    def contradictions(self, partition: _Draft, new: Member) -> None:
        """Note a rule that contradicts an earlier one of the same partition."""
        rules = partition.said
        if new.who is not Everyone.ALL and new.who not in rules:
            return
        before = list(rules.values()) if new.who is Everyone.ALL else [rules[new.who]]
        taken_back = [rule for rule in before if rule.membership != new.membership]
        if taken_back:
            earlier = ", ".join(f"{rule.label} (line {rule.line})" for rule in taken_back[:3])
            more = f" and {len(taken_back) - 3} more" if len(taken_back) > 3 else ""
            self.note(f"in partition {partition.label} {new.label} takes back {earlier}{more}: the last counts")

    # -- groups ---------------------------------------------------------------------------------------------------

    def group(self, definition: _Definition, mgid_text: str | None, words: list[str]) -> None:
        """Read a line `mgid=GID,flags`: a group that exists before any port joins."""
        try:
            mgid = Gid.parse(mgid_text or "")
        except ConfigError:
            mgid = Gid(0)
        flags = replace(definition.flags, t_class=0)  # all is inherited but this one
        for word in words:
            name, value = split(word)
            if not flags.take(name, value, self.note):
                self.note(f"the flag {name!r} of a group is not known and is ignored")
        if mgid >> 120 != 0xFF:
            self.note(f"mgid={mgid_text or ''} is not a multicast GID: ignored")
            return
        if mgid >> 96 & 0xFFFF in IP_SIGNATURES:
            why = self.unlike_broadcast(definition, mgid, flags)
            if why:
                self.note(f"mgid={mgid_text} is a group of IP, and its {why}: ignored")
                return
            mgid, flags.q_key = with_p_key(mgid, definition.partition.p_key), flags.q_key or IPOIB_Q_KEY
        if mgid in self.groups:
            self.note(f"the group {mgid} is there already: this line is ignored")
            return
        self.add_groups(definition.partition, flags, mgid)

    def unlike_broadcast(self, definition: _Definition, mgid: Gid, flags: Flags) -> str:
        """Return how an IP group differs from the broadcast group; empty if it does not."""
        p_key = mgid >> 80 & 0xFFFF
        if p_key not in (0, definition.partition.p_key | 0x8000) and mgid != broadcast_mgid(DEFAULT_P_KEY):
            return f"P_Key {p_key:#06x} is not that of the partition"
        if (flags.rate, flags.mtu) != (definition.flags.rate, definition.flags.mtu):
            return "rate or MTU is not that of the broadcast group"
        return ""

    def add_groups(self, partition: _Draft, flags: Flags, mgid: Gid) -> None:
        for group in flags.groups(mgid):
            existing = self.groups.get(group.mgid)
            if existing is None:
                why = refusal(group, self.groups)
                if why:
                    self.note(f"the group {group.mgid} is left out: {why}")
                else:
                    self.groups[group.mgid] = group
                    partition.groups.append(group)
            elif existing != group:
                self.note(f"the group {group.mgid} is there already, with other flags: the first count")
