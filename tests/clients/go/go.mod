module fencepost.test/franz-go

go 1.22
