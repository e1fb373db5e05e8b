package main

// Units of Grafana.
const (
	share   = "percentunit"
	seconds = "s"
	bytes   = "bytes"
)

// graph and stat are the kinds of panels that most are.
func graph(title, description, unit string, queries ...query) panel {
	return panel{title: title, description: description, kind: "timeseries", unit: unit, queries: queries}
}

func stat(title, description, unit, expr string) panel {
	return panel{title: title, description: description, kind: "stat", unit: unit, queries: []query{{expr, ""}}}
}

func stacked(p panel) panel {
	p.stack = true
	return p
}

// dashboards are all of them. Each title is a question of a user.
var dashboards = []dashboard{promise, node, shares, changes, health}

var promise = dashboard{
	uid: "mbcas-promise", title: "MBCAS: is it keeping its promise?",
	description: "The promise: no pod is throttled while CPU of its node is idle. All of it but the throttling, " +
		"the cores beyond " +
		"declared limits and the withheld ones comes from the controllers alone.",
	rows: [][]panel{
		{
			stat("Throttled while idle, 1 h", "Share of the time of managed pods in which they were throttled "+
				"although CPU of the supply was "+
				"idle. The objective is 0.1 %.", share, "mbcas:throttled_idle:ratio1h{@}"),
			stat("Throttled while idle, 30 days", "The same over thirty days.", share,
				"mbcas:throttled_idle:ratio30d{@}"),
			stat("In mode enforce", "Share of the managed pods whose limits MBCAS may change.", share,
				"mbcas:enforced:ratio{@}"),
			stat("Alerts", "Alerts of MBCAS that fire; see the runbooks.", "",
				`sum(ALERTS{@,alertname=~"Mbcas.+",alertstate="firing"}) or vector(0)`),
		},
		{
			graph("Is any pod throttled while CPU idles?", "The ratio over five minutes and an hour, of the time of "+
				"all pods, and of those whose limit is the decided one. The alert MbcasThrottledWhileIdle fires "+
				"when both exceed 1.4 %.", share,
				query{"mbcas:throttled_idle:ratio5m{@}", "5 min"}, query{"mbcas:throttled_idle:ratio1h{@}", "1 h"},
				query{"mbcas:throttled_in_force:ratio5m{@}", "as decided, 5 min"},
				query{"mbcas:throttled_in_force:ratio1h{@}", "as decided, 1 h"}),
			graph("What did it bring?", "CPU that pods used above their declared limits. A static limit would have "+
				"denied or delayed it.", "",
				query{"mbcas:beyond_declared_cores:rate5m{@}", "cores beyond declared limits"}),
			graph("What did it withhold?", "Demand above the decided limits, by what bounds them. In mode "+
				"recommend these limits are not in "+
				"force.", "", query{"mbcas:withheld_cores:rate5m{@}", "{{by}}"}),
		},
		{
			stacked(graph("Where is CPU scarce?", "Nodes without a price (free), with one (scarce), whose floors "+
				"exceed the supply (full), and whose agents are silent.", "",
				query{"mbcas:nodes:max{@}", "{{state}}"})),
			graph("How high is the price?", "Percentiles of the price over the nodes. It is high where budgets are "+
				"large, so no threshold "+
				"fits all clusters.", "", query{"mbcas:price:max{@}", "{{percentile}} %"}),
			graph("Does demand fit?", "Sums over the nodes: what the markets sell, what pods would use without "+
				"limits, and what they used.", "",
				query{"mbcas:cores:max{@}", "{{of}}"}),
		},
	},
}

var node = dashboard{
	uid: "mbcas-node", title: "MBCAS: what happens on this node?", node: true,
	description: "The market of one node, from its agent. kubectl mbcas explain POD says the same of one pod.",
	rows: [][]panel{
		{
			graph("Why is the price what it is?", "The price in force, and as cleared in the last round. 0: all "+
				"demands fit.", "",
				query{"mbcas_node_price{@}", "in force, {{node}}"}, query{"mbcas_node_cleared_price{@}",
					"cleared, {{node}}"}),
			graph("Does demand fit the supply?", "Supply is what the market sells; system is used outside of pods.",
				"",
				query{"mbcas_node_supply_cores{@}", "supply, {{node}}"}, query{"mbcas_node_demand_cores{@}",
					"demand, {{node}}"},
				query{"mbcas_node_usage_cores{@}", "usage, {{node}}"}, query{"mbcas_node_system_cores{@}",
					"system, {{node}}"}),
		},
		{
			graph("What are pods capped by?", "Pods with a decision by what bounds their limit.", "",
				query{"sum by (by) (mbcas_node_bound_pods{@})", "{{by}}"}),
			graph("Which pods take part?", "Pods by their part in the last round.", "",
				query{"sum by (part) (mbcas_node_pods{@})", "{{part}}"}),
			graph("Do tasks wait for a CPU?", "Share of time in which some task of the node waited for a CPU (PSI "+
				"some).", share,
				query{"mbcas_node_pressure_ratio{@}", "{{node}}"}),
		},
		{
			graph("What did it change?", "Sums of limits: as declared, as decided, and as the kernel enforces them.",
				"",
				query{"sum by (of) (mbcas_node_limit_cores{@})", "{{of}}"}),
			graph("Are pods throttled?", "Mean number of pods that are throttled, while CPU of the supply is idle, "+
				"and while it is scarce.", "",
				query{"sum by (while) (rate(mbcas_node_throttled_seconds_total{@}[5m]))", "{{while}}"}),
			graph("What did it bring and cost?", "CPU used beyond declared limits, and demand withheld by what "+
				"bounds the limit.", "",
				query{"sum(rate(mbcas_node_beyond_declared_core_seconds_total{@}[5m]))", "beyond declared"},
				query{"sum by (by) (rate(mbcas_node_withheld_core_seconds_total{@}[5m]))", "withheld by {{by}}"}),
		},
	},
}

var shares = dashboard{
	uid: "mbcas-shares", title: "MBCAS: which nodes and namespaces give and get?",
	description: "Nodes and namespaces in which limits give and take most. Pods: kubectl mbcas list -A --sort " +
		"demand.",
	rows: [][]panel{
		{
			graph("What do limits come to?", "Sums over all nodes: as declared, as decided, and as the kernel "+
				"enforces them.", "",
				query{"mbcas:limit_cores:sum{@}", "{{of}}"}),
			graph("By what is demand withheld?", "Demand above the decided limits.", "",
				query{"mbcas:withheld_cores:rate5m{@}", "{{by}}"}),
		},
		{
			graph("Where do pods get most beyond their limits?",
				"The ten nodes with the most CPU used above declared limits.", "",
				query{"topk(10, rate(mbcas_node_beyond_declared_core_seconds_total{@}[5m]))", "{{node}}"}),
			graph("Where is most withheld?", "The ten nodes with the most demand above the decided limits.", "",
				query{"topk(10, sum by (node, instance) (rate(mbcas_node_withheld_core_seconds_total{@}[5m])))",
					"{{node}}"}),
		},
		{
			graph("Where is demand highest?", "The ten nodes with the highest demand for their supply. Above 1, "+
				"CPU is scarce.", share,
				query{"topk(10, mbcas_node_demand_cores{@} / mbcas_node_supply_cores{@})", "{{node}}"}),
			graph("Where are most pods capped?", "The ten nodes with the highest share of bidding pods that the "+
				"price or the floor bounds.", share,
				query{`topk(10, sum by (node, instance) (mbcas_node_bound_pods{@,by=~"Price|Floor"}) / ` +
					`(sum by (node, instance) (mbcas_node_pods{@,part="bidding"}) > 0))`, "{{node}}"}),
		},
		{
			graph("Which namespaces use most beyond their limits?", "The ten namespaces with the most CPU used above "+
				"declared limits, as of the last decisions.", "",
				query{"topk(10, sum by (namespace) (mbcas_namespace_beyond_cores{@}))", "{{namespace}}"}),
			graph("Where did limits change most?", "The ten namespaces whose limits are furthest from the declared "+
				"ones. Below 0: limits were lowered.", "",
				query{"(sum by (namespace) (mbcas_namespace_limit_cores{@}) - " +
					"sum by (namespace) (mbcas_namespace_declared_cores{@})) and topk(10, " +
					"abs(sum by (namespace) (mbcas_namespace_limit_cores{@}) - " +
					"sum by (namespace) (mbcas_namespace_declared_cores{@})))", "{{namespace}}"}),
			graph("Which namespaces demand most?", "The ten namespaces with the highest demand, as of the last "+
				"decisions.", "",
				query{"topk(10, sum by (namespace) (mbcas_namespace_demand_cores{@}))", "{{namespace}}"}),
		},
		{
			graph("Which workloads need more replicas?", "Of the workloads with mbcas.io/share-signal, the ten with "+
				"the highest share pressure: how many times as many replicas would have what they demand.", "",
				query{"topk(10, mbcas:workload_share_pressure:ratio{@})", "{{namespace}} {{kind}}/{{workload}}"}),
		},
	},
}

var changes = dashboard{
	uid: "mbcas-changes", title: "MBCAS: what did it change, and did that harm?",
	description: "Resizes and what came of them. The controller's audit lines have each of them.",
	rows: [][]panel{
		{
			stat("Harmful decreases, 24 h", "Decreases after which the pod was soon not Ready, or a container "+
				"ended. Each was rolled back.", "",
				"sum(increase(mbcas_controller_harmful_decreases_total{@}[1d]))"),
			stat("Failed now", "Share of the managed pods whose last resize failed.", share, "mbcas:failed:ratio{@}"),
			stat("Time to the kernel, p99", "From the decision to resize until the kubelet reports it in force.",
				seconds,
				"mbcas:resize_duration_seconds:p99_15m{@}"),
			stat("Blocked", "1 while nothing is resized in the whole cluster.", "",
				"max(mbcas_controller_blocked{@}) or vector(0)"),
		},
		{
			graph("How much do limits move?", "Cores by which limits were changed, per second.", "",
				query{"mbcas:changed_cores:rate5m{@}", "{{direction}}"}),
			stacked(graph("What for?", "Resizes per second, by purpose.", "",
				query{"sum by (purpose) (mbcas:resizes:rate5m{@})", "{{purpose}}"})),
			stacked(graph("With what outcome?", "Resizes per second, by outcome.", "",
				query{"sum by (outcome) (mbcas:resizes:rate5m{@})", "{{outcome}}"})),
		},
		{
			graph("How long do resizes take?", "From the decision to resize until the kubelet reports it in force.",
				seconds,
				query{"mbcas:resize_duration_seconds:p50_15m{@}", "p50"},
				query{"mbcas:resize_duration_seconds:p99_15m{@}", "p99"}),
			graph("Did it harm?", "Harmful decreases in an hour, by what showed it.", "",
				query{"sum by (by) (increase(mbcas_controller_harmful_decreases_total{@}[1h]))", "{{by}}"}),
			graph("Are containers throttled?", "Share of CFS periods in which containers were throttled. Needs "+
				"kubelet's cAdvisor metrics.", share,
				query{"sum(rate(container_cpu_cfs_throttled_periods_total{@}[5m])) / " +
					"sum(rate(container_cpu_cfs_periods_total{@}[5m]))", "throttled"}),
		},
		{
			graph("Why are pods as they are?", "PodAllocations by phase and reason.", "",
				query{"sum by (phase, reason) (mbcas_controller_allocations{@})", "{{phase}} {{reason}}"}),
		},
	},
}

var health = dashboard{
	uid: "mbcas-health", title: "MBCAS: is it well itself?",
	description: "Agents and controllers. kubectl mbcas doctor checks the rest.",
	rows: [][]panel{
		{
			stat("Leads", "Replicas that hold the Lease of the leader: 1.", "", "sum(mbcas_controller_leader{@})"),
			stat("Agents unresponsive", "Agents of Ready nodes that have not renewed their Leases for two minutes.",
				"",
				"max(mbcas_controller_agents_unresponsive{@})"),
			stat("Decision age, p95", "Age of decisions when the controller acts on them.", seconds,
				"mbcas:decision_age_seconds:p95_15m{@}"),
			stat("Panics, 24 h", "Panics that were caught in agents and controllers.", "",
				`sum(increase(mbcas_agent_rounds_total{@,result="panicked"}[1d])) + `+
					`sum(increase(mbcas_agent_pod_panics_total{@}[1d])) + `+
					"sum(increase(mbcas_controller_panics_total{@}[1d]))"),
		},
		{
			graph("Do agents decide?", "Rounds per second of all agents, by result.", "",
				query{"sum by (result) (rate(mbcas_agent_rounds_total{@}[5m]))", "{{result}}"}),
			graph("How long does a round take?", "Time to read all counters and run the round, over all agents.",
				seconds,
				query{"histogram_quantile(0.5, sum by (le) (rate(mbcas_agent_round_duration_seconds_bucket{@}[5m])))",
					"p50"},
				query{"histogram_quantile(0.99, sum by (le) " +
					"(rate(mbcas_agent_round_duration_seconds_bucket{@}[5m])))", "p99"}),
			graph("Which agents miss ticks?", "The ten agents that skipped the most ticks because a round took too "+
				"long.", "",
				query{"topk(10, rate(mbcas_agent_missed_ticks_total{@}[5m]))", "{{node}}"}),
		},
		{
			graph("Are decisions published?", "Writes of PodAllocations per second, by result.", "",
				query{"sum by (result) (rate(mbcas_agent_publishes_total{@}[5m]))", "{{result}}"}),
			graph("Are Leases renewed?", "Renewals per second of all agents, by result.", "",
				query{"sum by (result) (rate(mbcas_agent_lease_renewals_total{@}[5m]))", "{{result}}"}),
			graph("Do resizes wait?", "Resizes that wait for their turn, by priority.", "",
				query{"sum by (priority) (mbcas_controller_resizes_waiting{@})", "{{priority}}"}),
		},
		{
			graph("How much memory does it take?", "Resident memory of the largest agent and of each controller.",
				bytes,
				query{`max(process_resident_memory_bytes{@,job=~".*mbcas-agent"})`, "largest agent"},
				query{`process_resident_memory_bytes{@,job=~".*mbcas-controller"}`, "{{instance}}"}),
			graph("How much CPU does it take?", "Cores of all agents, and of all controllers.", "",
				query{`sum(rate(process_cpu_seconds_total{@,job=~".*mbcas-agent"}[5m]))`, "agents"},
				query{`sum(rate(process_cpu_seconds_total{@,job=~".*mbcas-controller"}[5m]))`, "controllers"}),
			{
				title: "Which versions run?", description: "Processes by program and version.", kind: "table",
				queries: []query{{
					`count by (__name__, version) ({__name__=~"mbcas_(agent|controller)_build_info",@})`, "",
				}},
			},
		},
	},
}
