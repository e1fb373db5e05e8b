package weighting

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mbcas/mbcas/internal/idleclass"
	"github.com/mbcas/mbcas/internal/weights/wire"
)

var (
	upDesc = prometheus.NewDesc("mbcas_agent_weights_up",
		"1 while class and weight are decided and mbcas-weights answers; otherwise limits alone cap pods.", nil, nil)
	podsDesc = prometheus.NewDesc("mbcas_agent_weights_pods",
		"Pods whose CPU class and weight MBCAS has written, by class: idle or weighted.", []string{"class"}, nil)
	refusedDesc = prometheus.NewDesc("mbcas_agent_weights_refused_pods",
		"Pods whose CPU class and weight mbcas-weights does not write, by reason.", []string{"reason"}, nil)
	limitedDesc = prometheus.NewDesc("mbcas_agent_weights_limited_pods",
		"Pods of namespaces that allow weights whose limits may cap them, by the reason for that.",
		[]string{"reason"}, nil)
	rewritesDesc = prometheus.NewDesc("mbcas_agent_weights_rewrites_total",
		"Values that another program had changed and that were set again, since mbcas-weights started.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *Client) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, podsDesc, limitedDesc, refusedDesc, rewritesDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector. While mbcas-weights does not answer, only that is known, and that limits cap
// pods. For a while after a panic in the decision it writes nothing.
func (c *Client) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	c.collectLimited(gauge)
	last, now := c.last.Load(), time.Now()
	if !last.counts(now) || c.backsOff(now) {
		gauge(upDesc, 0)
		return
	}
	gauge(upDesc, 1)
	gauge(podsDesc, last.reply.Idle, "idle")
	gauge(podsDesc, last.reply.Weighted, "weighted")
	refused := map[wire.Refusal]int{}
	for _, r := range last.refused {
		refused[r.why]++
	}
	for _, why := range wire.Refusals() {
		gauge(refusedDesc, refused[why], string(why))
	}
	to <- prometheus.MustNewConstMetric(rewritesDesc, prometheus.CounterValue, float64(last.reply.Rewrites))
}

// collectLimited counts the pods of the last round that limits cap.
func (c *Client) collectLimited(gauge func(*prometheus.Desc, int, ...string)) {
	classes := c.classes.Load()
	if classes == nil {
		return
	}
	limited := map[string]int{}
	for _, class := range *classes {
		if class.Class.String() == idleclass.NameLimited {
			limited[class.Reason]++
		}
	}
	for why, pods := range limited {
		gauge(limitedDesc, pods, why)
	}
}
