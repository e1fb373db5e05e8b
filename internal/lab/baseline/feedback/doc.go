// Package feedback holds controllers that set each pod's limit from its own usage or throttling:
// Autothrottle's Captain and its K8s-CPU baselines, Gitpod, Kondense, Koordinator, and Rubik's
// quotaTurbo. Most write cgroups themselves.
package feedback
