"""Every transport of this machine, tested by the suite that third parties use."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from pscompy.testing import conformance

EXAMPLE = Path(__file__).parents[2] / "examples" / "transport_python"
PLUGINS = Path(__file__).parent / "plugins"


class TestShm(conformance.Suite):
    transport = "shm"


class TestShmWithTwoSlots(conformance.Suite):
    transport = "shm"
    config: ClassVar = {"SHM_RECVQ_SIZE": 2}


class TestShmByPut(conformance.Suite):
    transport = "shm"
    config: ClassVar = {"RNDV_SCHEME": "put"}


class TestShmByMessages(conformance.Suite):
    transport = "shm"
    config: ClassVar = {"RNDV_SCHEME": "am", "SHM_CMA": 0}


class TestShmWithReceivesThatTheSenderSees(conformance.Suite):
    transport = "shm"
    config: ClassVar = {"TUPLEQ": 1}


class TestShmWithProgressThread(conformance.Suite):
    transport = "shm"
    config: ClassVar = {"PROGRESS_THREAD": 1}


class TestTcp(conformance.Suite):
    transport = "tcp"


class TestTcpWithReceivesThatTheSenderSees(conformance.Suite):
    transport = "tcp"
    config: ClassVar = {"TUPLEQ": 1}


class TestTcpWithSmallBuffers(conformance.Suite):
    transport = "tcp"
    config: ClassVar = {"TCP_BUFFER_SIZE": "1k", "TCP_SO_SNDBUF": "4k", "TCP_SO_RCVBUF": "4k"}


class TestTcpOverTwoRails(conformance.Suite):
    transport = "tcp"
    config: ClassVar = {"TCP_RAILS": "127.0.0.1,127.0.0.2"}


class TestTcpOverTwoRailsWithSmallBuffers(conformance.Suite):
    transport = "tcp"
    config: ClassVar = {
        "TCP_RAILS": "127.0.0.1,127.0.0.2",
        "TCP_BUFFER_SIZE": "1k",
        "TCP_SO_SNDBUF": "4k",
        "TCP_SO_RCVBUF": "4k",
    }


class TestPython(conformance.Suite):
    """The example's transport, which is written in Python."""

    transport = "packets"

    @pytest.fixture(autouse=True)
    def installed(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Install the transport by PSP_PLUGINDIR: a file with the transport's name."""
        if self.config:
            return
        folder = tmp_path_factory.mktemp("plugins")
        module = EXAMPLE / "pscompy_packets" / "__init__.py"
        (folder / "packets.py").write_text(module.read_text())
        type(self).config = {"PLUGINDIR": str(folder)}


class TestPythonStream(conformance.Suite):
    """A transport over byte streams, with frames of 2 KiB and two of them in each queue."""

    transport = "pystream"
    config: ClassVar = {"PLUGINDIR": str(PLUGINS)}
