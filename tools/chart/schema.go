package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// described is a schema with a description.
func described(s schema, text string) schema {
	s = maps.Clone(s)
	s["description"] = text
	return s
}

// schemaFile is values.schema.json.
func schemaFile(rows []value) (string, error) {
	root := object()
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Values of the chart mbcas"
	for _, v := range rows {
		at := root
		parts := strings.Split(v.path, ".")
		for i, part := range parts {
			properties := at["properties"].(schema)
			if properties[part] == nil {
				at["required"] = append(at["required"].([]string), part)
				properties[part] = object()
			}
			if i == len(parts)-1 {
				properties[part] = described(v.schema, v.description)
				break
			}
			at = properties[part].(schema)
		}
	}
	// Helm adds it to the values of a chart that another one depends on.
	root["properties"].(schema)["global"] = schema{
		"type":        "object",
		"description": "What Helm adds to the values of a chart within another one. This chart does not read it.",
	}
	text, err := json.MarshalIndent(root, "", "  ")
	return string(text) + "\n", err
}

// object is a closed object.
func object() schema {
	return schema{"type": "object", "additionalProperties": false, "required": []string{}, "properties": schema{}}
}

// table is the table of values, for people.
func table(rows []value) string {
	out := "| value | default | meaning |\n| --- | --- | --- |\n"
	for _, v := range rows {
		def, err := json.Marshal(v.def)
		if err != nil {
			panic(fmt.Sprintf("default of %s: %v", v.path, err)) // it is a literal of this package
		}
		out += fmt.Sprintf("| `%s` | `%s` | %s |\n", v.path, def, v.description)
	}
	return out
}

// flagTable lists the flags that a value takes.
func flagTable(rows []value, path string) string {
	i := slices.IndexFunc(rows, func(v value) bool { return v.path == path })
	properties := rows[i].schema["properties"].(schema)
	out := "| flag | takes | meaning |\n| --- | --- | --- |\n"
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		s := properties[name].(schema)
		takes, _ := s["type"].(string)
		if words, ok := s["enum"].([]string); ok {
			takes = strings.Join(words, ", ")
		}
		switch s["pattern"] {
		case duration:
			takes = "duration"
		case decimal:
			takes = "number"
		}
		out += fmt.Sprintf("| `%s` | %s | %s |\n", name, takes, s["description"])
	}
	return out
}
