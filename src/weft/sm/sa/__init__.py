"""The subnet administrator: answers what programs ask about the subnet, and keeps what they tell it."""

__all__: list[str] = []
