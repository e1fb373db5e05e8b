package main

import (
	"encoding/json"
	"strings"
)

// dashboard is what a question needs: panels in rows.
type dashboard struct {
	uid, title, description string
	// node: the dashboard is about one node, and has a variable for it.
	node bool
	rows [][]panel
}

// panel is one panel. Panels of a row share its width equally.
type panel struct {
	title, description string
	kind               string // timeseries, stat or table
	unit               string // of Grafana; "": a number
	stack              bool
	queries            []query
}

// query is an expression with the legend of its series. In expr, @ stands for the selector of what the variables
// choose: mbcas_node_pods{@,part="bidding"}.
type query struct{ expr, legend string }

const (
	gridWidth     = 24
	statHeight    = 5
	graphHeight   = 8
	schemaVersion = 39 // of Grafana 10 and 11; later versions convert it when they load it
)

// The parts of Grafana's classic dashboards that are used here.
type (
	object = map[string]any
	list   = []any
)

// selectors are what @ stands for.
const (
	ofCluster = `cluster=~"$cluster"`
	ofNode    = ofCluster + `,node=~"$node"`
)

var datasource = object{"type": "prometheus", "uid": "${datasource}"}

// grafana is the dashboard as a file of Grafana.
func (d dashboard) grafana() ([]byte, error) {
	selector := ofCluster
	if d.node {
		selector = ofNode
	}
	var panels list
	y := 0
	for _, row := range d.rows {
		height := graphHeight
		if row[0].kind == "stat" {
			height = statHeight
		}
		width := gridWidth / len(row)
		for i, p := range row {
			at := object{"x": i * width, "y": y, "w": width, "h": height}
			panels = append(panels, p.grafana(len(panels)+1, at, selector))
		}
		y += height
	}
	raw, err := json.MarshalIndent(object{
		"uid": d.uid, "title": d.title, "description": d.description, "tags": list{"mbcas"},
		"schemaVersion": schemaVersion, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "30s",
		"time": object{"from": "now-1h", "to": "now"}, "timezone": "browser",
		"annotations": object{"list": list{}}, "templating": object{"list": d.variables()}, "panels": panels,
		"links": list{
			object{
				"type": "dashboards", "title": "MBCAS", "tags": list{"mbcas"}, "asDropdown": true, "keepTime": true,
				"includeVars": true, "icon": "external link", "targetBlank": false, "tooltip": "", "url": "",
			},
			object{
				"type": "link", "title": "Runbooks", "url": "https://github.com/mbcas/mbcas/tree/main/docs/runbooks",
				"icon": "doc",
				"tags": list{}, "asDropdown": false, "keepTime": false, "includeVars": false, "targetBlank": true,
				"tooltip": "",
			},
		},
	}, "", "  ")
	return append(raw, '\n'), err
}

// variables are the choices at the top.
func (d dashboard) variables() list {
	choice := func(name, label, query string) object {
		return object{
			"type": "query", "name": name, "label": label, "datasource": datasource,
			"query": object{"query": query, "refId": name}, "refresh": 2, "sort": 1, "multi": true,
			"includeAll": true,
			"allValue":   ".*", "current": object{"text": "All", "value": "$__all"}, "options": list{}, "hide": 0,
			"regex": "",
		}
	}
	variables := list{
		object{
			"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "hide": 0,
			"options": list{}, "refresh": 1, "regex": "", "multi": false, "includeAll": false,
		},
		choice("cluster", "Cluster", "label_values(mbcas_controller_leader, cluster)"),
	}
	if d.node {
		variables = append(variables, choice("node", "Node", "label_values(mbcas_node_price{"+ofCluster+"}, node)"))
	}
	return variables
}

func (p panel) grafana(id int, at object, selector string) object {
	var targets list
	for i, q := range p.queries {
		t := object{
			"refId": string(rune('A' + i)), "datasource": datasource, "expr": strings.ReplaceAll(q.expr, "@",
				selector),
			"legendFormat": q.legend, "range": p.kind == "timeseries", "instant": p.kind != "timeseries",
		}
		if p.kind == "table" {
			t["format"] = "table"
		}
		targets = append(targets, t)
	}
	options := object{}
	defaults := object{"unit": p.unit}
	switch p.kind {
	case "timeseries":
		options = object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": list{}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
		stacking := "none"
		if p.stack {
			stacking = "normal"
		}
		defaults["min"] = 0
		defaults["custom"] = object{
			"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never",
			"stacking": object{"mode": stacking, "group": "A"},
		}
	case "stat":
		options = object{
			"reduceOptions": object{"calcs": list{"lastNotNull"}, "fields": "", "values": false}, "colorMode": "none",
			"graphMode": "none", "justifyMode": "auto", "textMode": "auto", "orientation": "auto",
		}
	case "table":
		options = object{"showHeader": true}
	}
	return object{
		"id": id, "type": p.kind, "title": p.title, "description": p.description, "gridPos": at,
		"datasource": datasource,
		"targets":    targets, "options": options, "fieldConfig": object{"defaults": defaults, "overrides": list{}},
	}
}
