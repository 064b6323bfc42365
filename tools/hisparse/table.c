/* SPDX-License-Identifier: MIT */
#include "tools/hisparse/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "tools/hisparse/command.h"

struct hs_table {
	const char *align;
	size_t columns, count, room;
	char **cells;
};

struct hs_table *hs_table_create(const char *align)
{
	struct hs_table *table = hs_need(calloc(1, sizeof(*table)));

	table->align = align;
	table->columns = strlen(align);
	return table;
}

void hs_table_destroy(struct hs_table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i]);
	free(table->cells);
	free(table);
}

void hs_table_cell(struct hs_table *table, const char *format, ...)
{
	va_list list;
	char *text = NULL;

	if (table->count == table->room) {
		table->room = table->room ? 2 * table->room : 64;
		table->cells = hs_need(realloc(table->cells, table->room * sizeof(*table->cells)));
	}
	va_start(list, format);
	if (vasprintf(&text, format, list) < 0)
		text = NULL;
	va_end(list);
	table->cells[table->count++] = hs_need(text);
}

void hs_table_print(const struct hs_table *table)
{
	size_t width[32] = {0}, pad = 0;

	for (size_t i = 0; i < table->count; i++) {
		size_t length = strlen(table->cells[i]);

		if (length > width[i % table->columns])
			width[i % table->columns] = length;
	}
	for (size_t i = 0; i < table->count; i++) {
		size_t column = i % table->columns, length = strlen(table->cells[i]);
		size_t lead = table->align[column] == 'r' ? width[column] - length : 0;
		bool head = i < table->columns;

		/* Blanks wait until something follows them. */
		if (length) {
			printf("%*s%s%s%s", (int)(pad + lead), "", head ? hs_colour(HS_BOLD) : "",
				table->cells[i], head ? hs_colour(HS_PLAIN) : "");
			pad = width[column] - length - lead + 2;
		} else {
			pad += width[column] + 2;
		}
		if (column == table->columns - 1) {
			putchar('\n');
			pad = 0;
		}
	}
}
