/* SPDX-License-Identifier: MIT */
/* Stands in for the library where only its being preloaded matters. */
extern const char hisparse_probe[];
const char hisparse_probe[] = "preloaded";
