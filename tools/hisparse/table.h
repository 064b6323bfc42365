/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_HISPARSE_TABLE_H
#define TOOLS_HISPARSE_TABLE_H

/*
 * A table for people: cells are added left to right, top to bottom, and the
 * widths come out right when it is printed. The first row is the heading.
 */

struct hs_table;

/* align: one character a column, 'l' or 'r'. */
struct hs_table *hs_table_create(const char *align);
void hs_table_destroy(struct hs_table *table);
void hs_table_cell(struct hs_table *table, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void hs_table_print(const struct hs_table *table);

#endif
