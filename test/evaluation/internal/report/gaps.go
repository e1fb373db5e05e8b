package report

// gaps are what the evaluation does not have, with the reason. A row goes when the thing is there.
var gaps = []Reason{
	{
		"Koordinator's koordlet",
		"only in the simulator (`mbcas-lab compare`); it was not tried whether it builds from its modules",
	},
	{
		"VPA as shipped with a history of days",
		"its recommender learns for two minutes here; the simulator plays its histograms over days",
	},
	{
		"VPA, Recreate; VPA and HPA where CPU is idle or requests tell; VPA where all burst, and as shipped where " +
			"requests mislead; MBCAS with weights where nothing tells; an HPA's reaction; a rolling update",
		"MORE=1 plays them; there is no time for them in three hours",
	},
	{"other settings of HPA", "it has its default windows, and time to scale before the measured time"},
	{"kube-startup-cpu-boost, and start-up as a situation", "not built yet"},
	{
		"recorded traces, scale-in of an HPA",
		"not built yet; scale-in alone takes five minutes with the default window",
	},
	{"a JVM", "its server would have to be compiled, which takes a JDK in the image"},
	{
		"the same on a native cgroup v2 host",
		"run `make evaluation` there; the virtual node of the local cluster is for correctness, not for figures",
	},
	{"other policies on other clusters (kind, managed)", "`compare` has MBCAS and declared limits alone, see above"},
	{"CPU of the VPA's and the HPA's programs", "their writes are counted; of MBCAS' the CPU is measured, too"},
	{"memory of the controllers", "in cost-and-sizing.md, not per cell"},
}
