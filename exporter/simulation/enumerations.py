"""The enumerations and exceptions of the package `amdsmi` of ROCm 10.1, as far as they are used."""

from __future__ import annotations

from enum import IntEnum

INVAL = 1
NOT_SUPPORTED = 2
DRM_ERROR = 6
UNEXPECTED_DATA = 43
_MESSAGES = {
    INVAL: "AMDSMI_STATUS_INVAL - Invalid parameters",
    NOT_SUPPORTED: "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported",
    DRM_ERROR: "AMDSMI_STATUS_DRM_ERROR - Error when called libdrm",
    UNEXPECTED_DATA: "AMDSMI_STATUS_UNEXPECTED_DATA - The data read or provided was unexpected",
}


class AmdSmiLibraryException(Exception):  # noqa: N818  # the vendor's name
    """A call of the library failed with a status code."""

    def __init__(self, err_code: int) -> None:
        super().__init__(f"Error code:\n\t{err_code} | {_MESSAGES[err_code]}")
        self.err_code = err_code

    def get_error_code(self) -> int:
        """The status code."""
        return self.err_code


class AmdSmiInitFlags(IntEnum):
    """What to initialise."""

    INIT_AMD_GPUS = 2


class AmdSmiClkType(IntEnum):
    """Clocks."""

    SYS = 0
    GFX = 0
    DF = 1
    DCEF = 2
    SOC = 3
    MEM = 4
    PCIE = 5
    VCLK0 = 6
    VCLK1 = 7
    DCLK0 = 8
    DCLK1 = 9


class AmdSmiTemperatureType(IntEnum):
    """Sensors."""

    EDGE = 0
    HOTSPOT = 1
    JUNCTION = 1
    VRAM = 2
    HBM_0 = 3
    HBM_1 = 4
    HBM_2 = 5
    HBM_3 = 6
    PLX = 7


class AmdSmiTemperatureMetric(IntEnum):
    """What of a sensor."""

    CURRENT = 0
    MAX = 1
    MIN = 2
    CRITICAL = 5
    EMERGENCY = 7


class AmdSmiMemoryType(IntEnum):
    """Kinds of memory."""

    VRAM = 0
    VIS_VRAM = 1
    GTT = 2


class AmdSmiMemoryPageStatus(IntEnum):
    """States of a bad page."""

    RESERVED = 0
    PENDING = 1
    UNRESERVABLE = 2


class AmdSmiLinkType(IntEnum):
    """Kinds of links."""

    AMDSMI_LINK_TYPE_INTERNAL = 0
    AMDSMI_LINK_TYPE_PCIE = 1
    AMDSMI_LINK_TYPE_XGMI = 2
    AMDSMI_LINK_TYPE_NOT_APPLICABLE = 3
    AMDSMI_LINK_TYPE_UNKNOWN = 4


_BLOCKS = """
UMC SDMA GFX MMHUB ATHUB PCIE_BIF HDP XGMI_WAFL DF SMN SEM MP0 MP1 FUSE MCA VCN JPEG IH MPIO MMSCH
MP5 ATU DACC_BE ECLR KPX_SERDES LSDMA MPART MPIFOE MPRAS NBIF NBIO OXRP PCIE_PL PCS_XGMI PIE CS
SHUB SSBDCI UCIE_PCS
"""
AmdSmiGpuBlock = IntEnum(  # type: ignore[misc]  # numbered by place
    "AmdSmiGpuBlock",
    {
        "INVALID": 0,
        **{name: 1 << place for place, name in enumerate(_BLOCKS.split())},
        "RESERVED": 1 << 63,
    },
)
"""Blocks with RAS."""
RAS_BLOCKS = ("UMC", "GFX", "MMHUB", "ATHUB", "PCIE_BIF", "HDP", "XGMI_WAFL", "DF")
"""Those where it is enabled (feature mask 0x1fd)."""


class AmdSmiFwBlock(IntEnum):
    """Firmwares."""

    AMDSMI_FW_ID_CP_MEC1 = 7
    AMDSMI_FW_ID_CP_MEC2 = 8
    AMDSMI_FW_ID_RLC = 9
    AMDSMI_FW_ID_SDMA0 = 10
    AMDSMI_FW_ID_SDMA1 = 11
    AMDSMI_FW_ID_VCN = 18
    AMDSMI_FW_ID_PSP_SOSDRV = 30
    AMDSMI_FW_ID_ASD = 72
    AMDSMI_FW_ID_TA_RAS = 73
    AMDSMI_FW_ID_TA_XGMI = 74
    AMDSMI_FW_ID_PM = 77
