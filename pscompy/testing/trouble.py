"""Cases with faults."""

from pscompy.testing.link import Base


class Trouble(Base):
    """later"""
