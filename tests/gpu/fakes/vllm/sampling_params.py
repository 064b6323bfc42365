# SPDX-License-Identifier: MIT
class RequestOutputKind:
    DELTA = 1
